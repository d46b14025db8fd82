"""Conversations, streams, vectors and mistakes through the packages of three dialects, against one server.

The first model of the server must have a chat template. Every dialect gives the same greedy answer.
"""

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


def main():
    url = sys.argv[1].rstrip("/")
    model, text = through_openai(url)
    through_anthropic(url, model, text)
    through_ollama(url, model, text)
    print(f"openai {openai.__version__}, anthropic {anthropic.__version__}, ollama: all as they should be")


main()
