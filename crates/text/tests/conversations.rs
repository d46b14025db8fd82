//! Conversations with calls, whatever a template takes.

mod common;

use attend_text::{ChatTemplate, Render};
use common::with_special;
use serde_json::{Value, json};

fn tools() -> Value {
    json!([{"type": "function", "function": {"name": "weather", "description": "d", "parameters": {"type": "object", "properties": {}}}}])
}

fn conversation(tools: Option<Value>) -> Render {
    let messages = json!([
        {"role": "user", "content": "How is it?"},
        {"role": "assistant", "content": null, "tool_calls": [
            {"id": "call_0123456789ab", "type": "function", "function": {"name": "weather", "arguments": {"city": "Paris"}}},
        ]},
        {"role": "tool", "content": "rain", "tool_call_id": "call_0123456789ab", "name": "weather"},
    ]);
    Render { messages, tools, add_generation_prompt: true, ..Render::default() }
}

fn rendered(source: &str, request: &Render) -> String {
    let rendered = ChatTemplate::new(source, None, None).render_conversation(request, &with_special(&[]));
    rendered.map_or_else(|error| format!("refused: {error}"), |rendered| rendered.text().to_owned())
}

#[test]
fn arguments_are_what_a_template_takes() {
    let calls = |inner: &str| {
        format!(
            "{{{{ tools|length }}}}{{% for m in messages %}}{{% for c in m.tool_calls %}}{inner}{{% endfor %}}{{% endfor %}}"
        )
    };
    let request = conversation(Some(tools()));
    assert_eq!(rendered(&calls("{{ c.function.arguments|tojson }}"), &request), "1{\"city\": \"Paris\"}");
    assert_eq!(rendered(&calls("{{ c.function.arguments.city }}"), &request), "1Paris");
    assert_eq!(rendered(&calls("{{ 'x' + c.function.arguments }}"), &request), "1x{\"city\":\"Paris\"}");
    assert_eq!(rendered(&calls("{{ m.content + c.function.name }}"), &request), "1weather");
    let checked = "[TOOL_CALLS]{{ tools|length }}{% for m in messages %}{% for c in m.tool_calls %}{{ c.id }} {% endfor %}{{ m.tool_call_id }}{% endfor %}";
    assert_eq!(rendered(checked, &request), "[TOOL_CALLS]13456789ab 3456789ab");
    assert!(rendered("{{ tools }}{{ raise_exception('no') }}", &request).starts_with("refused: "));
}

#[test]
fn a_template_without_tools_gets_them_in_words() {
    let plain = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}";
    let text = rendered(plain, &conversation(Some(tools())));
    for part in [
        "system: You can call",
        "{\"name\":\"weather\",\"description\":\"d\"",
        "user: How is it?",
        "assistant: <tool_call>\n{\"name\":\"weather\",\"arguments\":{\"city\":\"Paris\"}}\n</tool_call>",
        "user: <tool_response>\nrain\n</tool_response>",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let strict = "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no') }}{% endif %}{{ m.role }}: {{ m.content }}\n{% endfor %}";
    let text = rendered(strict, &conversation(Some(tools())));
    assert!(text.starts_with("user: You can call") && text.contains("How is it?\nassistant: "), "{text}");
    // What was called is told where nothing more can be.
    let text = rendered(plain, &conversation(None));
    assert!(text.starts_with("user: How is it?\nassistant: <tool_call>"), "{text}");
}
