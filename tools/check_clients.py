"""Conversations, streams, answers of a schema, calls, vectors and mistakes through the packages of three dialects, against one server.

The first model of the server must have a chat template. Every dialect gives the same greedy answer. With `--tools` the model
is one that calls functions by itself; without, calls are only forced.
"""

import json
import sys
from array import array

import anthropic
import ollama
import openai

QUESTION = [{"role": "user", "content": "Why is the sky blue?"}]
TOKENS = 20


def refused(status, call):
    """The call must fail with this status, as the package's own error."""
    try:
        call()
    except (openai.APIStatusError, anthropic.APIStatusError, ollama.ResponseError) as error:
        assert error.status_code == status, error
    else:
        raise AssertionError(f"not refused with {status}")


def through_openai(url):
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    model = client.models.list().data[0].id
    settings = dict(model=model, messages=QUESTION, max_completion_tokens=TOKENS, temperature=0)
    whole = client.chat.completions.create(**settings, logprobs=True, top_logprobs=2)
    text = whole.choices[0].message.content
    assert text and whole.usage.completion_tokens <= TOKENS
    assert len(whole.choices[0].logprobs.content) == whole.usage.completion_tokens
    pieces, usage = "", None
    for chunk in client.chat.completions.create(**settings, stream=True, stream_options={"include_usage": True}):
        if chunk.choices:
            pieces += chunk.choices[0].delta.content or ""
        else:
            usage = chunk.usage
    assert pieces == text and usage == whole.usage
    both = client.completions.create(model=model, prompt=["The sky is", "Water is"], max_tokens=5, n=2, temperature=1, seed=3, echo=True)
    assert len(both.choices) == 4 and both.choices[0].text.startswith("The sky is")
    vectors = client.embeddings.create(model=model, input=["a", "b"])
    plain = client.embeddings.create(model=model, input=["a", "b"], encoding_format="float")
    # Bytes hold single precision, and so do the decimals.
    assert [array("f", v.embedding) for v in vectors.data] == [array("f", v.embedding) for v in plain.data]
    refused(404, lambda: client.chat.completions.create(model="none", messages=QUESTION))
    refused(400, lambda: client.chat.completions.create(model=model, messages=[]))
    refused(400, lambda: client.chat.completions.create(model=model, messages=QUESTION, temperature=-1))
    return model, text


def through_anthropic(url, model, text):
    client = anthropic.Anthropic(base_url=url, api_key="none", max_retries=0)
    # Its newer versions have no parameter for the temperature.
    settings = dict(model=model, max_tokens=TOKENS, messages=QUESTION, extra_body={"temperature": 0})
    whole = client.messages.create(**settings)
    assert whole.content[0].text == text and whole.usage.output_tokens <= TOKENS
    with client.messages.stream(**settings) as stream:
        pieces = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert pieces == text and final.content[0].text == text and final.stop_reason == whole.stop_reason
    assert final.usage.output_tokens == whole.usage.output_tokens
    counted = client.messages.count_tokens(model=model, messages=QUESTION)
    assert counted.input_tokens == whole.usage.input_tokens
    refused(404, lambda: client.messages.create(model="none", max_tokens=2, messages=QUESTION))
    refused(400, lambda: client.messages.create(model=model, max_tokens=0, messages=QUESTION))


def through_ollama(url, model, text):
    client = ollama.Client(host=url)
    assert model in [entry.model for entry in client.list().models]
    assert "completion" in client.show(model).capabilities
    settings = dict(model=model, messages=QUESTION, options={"num_predict": TOKENS, "temperature": 0})
    assert client.chat(**settings).message.content == text
    assert "".join(part.message.content for part in client.chat(**settings, stream=True)) == text
    assert client.generate(model=model, prompt=QUESTION[0]["content"], options=settings["options"]).response == text
    assert len(client.embed(model=model, input=["a", "b"]).embeddings) == 2
    refused(404, lambda: client.chat(model="none", messages=QUESTION))


PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "mood": {"enum": ["glad", "sad"]},
    },
    "required": ["name", "age", "mood"],
    "additionalProperties": False,
}
DESCRIBED = [{"role": "user", "content": "Ann is 31 years old and happy. Describe her."}]
SPACIOUS = 200


def is_person(text):
    """The text is JSON that the schema describes and nothing else."""
    person = json.loads(text)
    assert list(person) == ["name", "age", "mood"], text
    assert isinstance(person["name"], str) and len(person["name"]) <= 20, text
    assert isinstance(person["age"], int) and 0 <= person["age"] <= 150 and person["mood"] in ("glad", "sad"), text


def schema_through_openai(url, model):
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    settings = dict(model=model, messages=DESCRIBED, max_completion_tokens=SPACIOUS, temperature=0)
    described = {"type": "json_schema", "json_schema": {"name": "person", "strict": True, "schema": PERSON}}
    whole = client.chat.completions.create(**settings, response_format=described).choices[0]
    assert whole.finish_reason == "stop", whole
    text = whole.message.content
    is_person(text)
    streamed = client.chat.completions.create(**settings, response_format=described, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in streamed) == text
    wrong = {"type": "json_schema", "json_schema": {"name": "person", "schema": {"type": "none"}}}
    refused(400, lambda: client.chat.completions.create(**settings, response_format=wrong))
    return text


def schema_through_anthropic(url, model, text):
    client = anthropic.Anthropic(base_url=url, api_key="none", max_retries=0)
    settings = dict(model=model, messages=DESCRIBED, max_tokens=SPACIOUS, extra_body={"temperature": 0})
    described = {"format": {"type": "json_schema", "schema": PERSON}}
    whole = client.messages.create(**settings, output_config=described)
    assert whole.content[0].text == text and whole.stop_reason == "end_turn", whole
    with client.messages.stream(**settings, output_config=described) as stream:
        assert "".join(stream.text_stream) == text
    wrong = {"format": {"type": "json_schema", "schema": {"type": "none"}}}
    refused(400, lambda: client.messages.create(**settings, output_config=wrong))


def schema_through_ollama(url, model, text):
    client = ollama.Client(host=url)
    options = {"num_predict": SPACIOUS, "temperature": 0}
    settings = dict(model=model, messages=DESCRIBED, options=options)
    assert client.chat(**settings, format=PERSON).message.content == text
    assert "".join(part.message.content for part in client.chat(**settings, format=PERSON, stream=True)) == text
    is_person(client.generate(model=model, prompt="Ann:", raw=True, options=options, format=PERSON).response)
    refused(400, lambda: client.chat(**settings, format={"type": "none"}))


WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string", "description": "The name of a city"}},
    "required": ["city"],
}
ASKED = "What is the weather in Paris right now?"
RETURNED = "light rain, 11 degrees Celsius"


def weather(city):
    """The tool: it is asked about one city."""
    assert "paris" in city.lower(), city
    return RETURNED


def told(text):
    """The last answer says what the tool returned."""
    assert "11" in text or "rain" in text.lower(), text


def calls_through_openai(url, model, by_itself):
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    tools = [{"type": "function", "function": {"name": "get_weather", "description": "The weather in a city", "parameters": WEATHER}}]
    messages = [{"role": "user", "content": ASKED}]
    settings = dict(model=model, tools=tools, temperature=0, max_completion_tokens=100)
    choices = ["auto"] if by_itself else []
    for choice in choices + ["required", {"type": "function", "function": {"name": "get_weather"}}]:
        whole = client.chat.completions.create(**settings, messages=messages, tool_choice=choice).choices[0]
        assert whole.finish_reason == "tool_calls", whole
        call = whole.message.tool_calls[0]
        assert call.type == "function" and call.function.name == "get_weather" and call.id.startswith("call_")
        returned = weather(**json.loads(call.function.arguments)) if by_itself else RETURNED
        names, given, reason = "", "", None
        for chunk in client.chat.completions.create(**settings, messages=messages, tool_choice=choice, stream=True):
            delta = chunk.choices[0].delta
            for piece in delta.tool_calls or []:
                if piece.index == 0:
                    names += piece.function.name or ""
                    given += piece.function.arguments or ""
            reason = chunk.choices[0].finish_reason or reason
        assert (names, given, reason) == ("get_weather", call.function.arguments, "tool_calls"), (names, given, reason)
        if choice == "auto":
            print("  the call:", call.function.name, call.function.arguments)
    messages += [whole.message, {"role": "tool", "tool_call_id": call.id, "content": returned}]
    # Small models call again and again as long as they may.
    last = client.chat.completions.create(**settings, messages=messages, tool_choice="none").choices[0]
    assert last.message.content, last
    if by_itself:
        told(last.message.content)
        print("  the answer:", last.message.content)
    none = client.chat.completions.create(**settings, messages=messages[:1], tool_choice="none").choices[0]
    assert none.message.tool_calls is None and none.message.content
    refused(400, lambda: client.chat.completions.create(**settings, messages=messages[:1], tool_choice={"type": "function", "function": {"name": "x"}}))
    refused(400, lambda: client.chat.completions.create(**settings, messages=[{"role": "tool", "tool_call_id": "x", "content": "x"}]))


def calls_through_anthropic(url, model, by_itself):
    client = anthropic.Anthropic(base_url=url, api_key="none", max_retries=0)
    tools = [{"name": "get_weather", "description": "The weather in a city", "input_schema": WEATHER}]
    messages = [{"role": "user", "content": ASKED}]
    settings = dict(model=model, tools=tools, max_tokens=100, extra_body={"temperature": 0})
    for choice in ([{"type": "auto"}] if by_itself else []) + [{"type": "any"}, {"type": "tool", "name": "get_weather"}]:
        whole = client.messages.create(**settings, messages=messages, tool_choice=choice)
        assert whole.stop_reason == "tool_use", whole
        use = next(block for block in whole.content if block.type == "tool_use")
        assert use.name == "get_weather" and use.id.startswith("toolu_")
        with client.messages.stream(**settings, messages=messages, tool_choice=choice) as stream:
            final = stream.get_final_message()
        assert [(block.type, getattr(block, "input", None)) for block in final.content] == [
            (block.type, getattr(block, "input", None)) for block in whole.content
        ]
        assert final.stop_reason == "tool_use"
    returned = weather(**use.input) if by_itself else RETURNED
    result = {"type": "tool_result", "tool_use_id": use.id, "content": returned}
    messages += [{"role": "assistant", "content": whole.content}, {"role": "user", "content": [result]}]
    last = client.messages.create(**settings, messages=messages, tool_choice={"type": "none"})
    if by_itself:
        told(last.content[0].text)
    again = client.messages.create(**settings, messages=messages)
    assert client.messages.count_tokens(model=model, tools=tools, messages=messages).input_tokens == again.usage.input_tokens


def calls_through_ollama(url, model, by_itself):
    client = ollama.Client(host=url)
    tools = [{"type": "function", "function": {"name": "get_weather", "description": "The weather in a city", "parameters": WEATHER}}]
    messages = [{"role": "user", "content": ASKED}]
    settings = dict(model=model, tools=tools, options={"num_predict": 100, "temperature": 0})
    whole = client.chat(**settings, messages=messages)
    streamed = [call for part in client.chat(**settings, messages=messages, stream=True) for call in part.message.tool_calls or []]
    assert streamed == list(whole.message.tool_calls or [])
    if not by_itself:
        return
    assert "tools" in client.show(model).capabilities
    call = whole.message.tool_calls[0].function
    assert call.name == "get_weather"
    messages += [whole.message, {"role": "tool", "tool_name": call.name, "content": weather(**call.arguments)}]
    told(client.chat(model=model, messages=messages, options=settings["options"]).message.content)


def main():
    url = sys.argv[1].rstrip("/")
    by_itself = "--tools" in sys.argv
    model, text = through_openai(url)
    through_anthropic(url, model, text)
    through_ollama(url, model, text)
    text = schema_through_openai(url, model)
    schema_through_anthropic(url, model, text)
    schema_through_ollama(url, model, text)
    print("  the schema:", text)
    calls_through_openai(url, model, by_itself)
    calls_through_anthropic(url, model, by_itself)
    calls_through_ollama(url, model, by_itself)
    print(f"openai {openai.__version__}, anthropic {anthropic.__version__}, ollama: all as they should be")


main()
