//! A client that sends what it is told, byte by byte where that is wanted.

use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// What came back.
#[derive(Debug, Clone)]
pub struct Answer {
    pub status: u16,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The body of a success.
    #[track_caller]
    pub fn good(&self) -> Value {
        assert_eq!(self.status, 200, "{self:?}");
        self.json()
    }

    /// The error of a refusal in OpenAI's shape.
    #[track_caller]
    pub fn refused(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{self:?}");
        let error = self.json()["error"].clone();
        assert!(error["message"].as_str().is_some_and(|message| !message.is_empty()), "{self:?}");
        assert!(error["type"].is_string() && error.get("param").is_some() && error.get("code").is_some(), "{self:?}");
        error
    }

    /// The data of an event stream, without its end.
    #[track_caller]
    pub fn events(&self) -> Vec<Value> {
        assert_eq!(self.status, 200, "{self:?}");
        assert_eq!(self.header("content-type"), Some("text/event-stream"));
        let mut events: Vec<&str> = self.body.split_terminator("\n\n").collect();
        assert_eq!(events.pop(), Some("data: [DONE]"), "{self:?}");
        let data = |event: &str| {
            let data = event.strip_prefix("data: ").unwrap_or_else(|| panic!("{event:?}"));
            assert!(!data.contains('\n'), "{event:?}");
            serde_json::from_str(data).expect("JSON")
        };
        events.into_iter().map(data).collect()
    }
}

/// The bytes of a request.
pub fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut head = format!("{method} {path} HTTP/1.1\r\n");
    let has = |name: &str| headers.iter().any(|(own, _)| own.eq_ignore_ascii_case(name));
    if !has("host") {
        head += "Host: localhost\r\n";
    }
    if !has("connection") {
        head += "Connection: close\r\n";
    }
    if !has("content-length") && !has("transfer-encoding") && (!body.is_empty() || method == "POST") {
        head += &format!("Content-Length: {}\r\n", body.len());
    }
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    [head.as_bytes(), b"\r\n", body].concat()
}

pub fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("connected");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("set");
    stream.set_nodelay(true).expect("set");
    stream
}

/// Sends bytes and reads the answer to its end.
pub fn send(address: SocketAddr, bytes: &[u8]) -> Answer {
    let mut stream = connect(address);
    // A server that refuses early may close before it has read all.
    let _ = stream.write_all(bytes);
    let mut reader = BufReader::new(stream);
    if bytes.starts_with(b"HEAD ") {
        return Answer { status: read_head(&mut reader), headers: Vec::new(), body: String::new() };
    }
    read(&mut reader).expect("an answer")
}

/// Reads an answer; None where the connection is closed without one.
pub fn read(reader: &mut BufReader<impl Read>) -> Option<Answer> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|&length| length > 0)?;
    let status = line.split(' ').nth(1)?.parse().ok()?;
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        headers.push((name.to_ascii_lowercase(), value.to_owned()));
    }
    let mut answer = Answer { status, headers, body: String::new() };
    let mut body = Vec::new();
    if let Some(length) = answer.header("content-length").and_then(|length| length.parse().ok()) {
        body.resize(length, 0);
        reader.read_exact(&mut body).ok()?;
    } else if answer.header("transfer-encoding").is_some() {
        while let Some(chunk) = chunk(reader) {
            body.extend(chunk);
        }
    }
    answer.body = String::from_utf8(body).expect("UTF-8");
    Some(answer)
}

/// The next chunk of a body; None at its end.
pub fn chunk(reader: &mut BufReader<impl Read>) -> Option<Vec<u8>> {
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let length = usize::from_str_radix(line.trim(), 16).ok()?;
    let mut bytes = vec![0; length + 2];
    reader.read_exact(&mut bytes).ok()?;
    bytes.truncate(length);
    std::str::from_utf8(&bytes).expect("whole characters");
    (length > 0).then_some(bytes)
}

/// Reads the head of an answer, whose body is read by [`chunk`]; gives its status.
pub fn read_head(reader: &mut BufReader<impl Read>) -> u16 {
    let mut status = None;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).expect("a line");
        if line.trim_end().is_empty() {
            return status.expect("a status");
        }
        status = status.or_else(|| line.split(' ').nth(1).and_then(|status| status.parse().ok()));
    }
}

/// The texts of a streamed answer's choices, and why each ended.
pub fn streamed(answer: &Answer, chat: bool) -> BTreeMap<u64, (String, Option<String>)> {
    let mut choices: BTreeMap<u64, (String, Option<String>)> = BTreeMap::new();
    for event in answer.events() {
        for choice in event["choices"].as_array().expect("choices") {
            let entry = choices.entry(choice["index"].as_u64().expect("an index")).or_default();
            let text = if chat { &choice["delta"]["content"] } else { &choice["text"] };
            assert!(entry.1.is_none(), "nothing follows the end of a choice: {event}");
            entry.0 += text.as_str().unwrap_or_default();
            entry.1 = choice["finish_reason"].as_str().map(str::to_owned);
        }
    }
    choices
}

/// The texts of a whole answer's choices, and why each ended.
pub fn whole(answer: &Value, chat: bool) -> BTreeMap<u64, (String, Option<String>)> {
    let choices = answer["choices"].as_array().expect("choices").iter().map(|choice| {
        let text = if chat { &choice["message"]["content"] } else { &choice["text"] };
        let reason = choice["finish_reason"].as_str().map(str::to_owned);
        (choice["index"].as_u64().expect("an index"), (text.as_str().expect("a text").to_owned(), reason))
    });
    choices.collect()
}

/// A request with changes.
pub fn with(body: &Value, changes: Value) -> Value {
    let mut body = body.clone();
    body.as_object_mut().expect("an object").extend(changes.as_object().cloned().expect("an object"));
    body
}
