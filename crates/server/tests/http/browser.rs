//! A browser without a window, led through the pipe of its DevTools protocol: no port, no other program, no dependency.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// No single answer of a browser takes longer, nor does anything that is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// The first of Chromium's names that there is.
pub fn program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let names = ["chromium", "chromium-browser", "google-chrome", "chrome"];
    names
        .iter()
        .find_map(|name| std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file()))
}

/// A browser with one page.
pub struct Browser {
    child: Child,
    to: ChildStdin,
    from: Receiver<Value>,
    asked: u64,
    session: Value,
    /// What the page said was wrong, and every address that it asked for.
    pub errors: Vec<String>,
    pub asked_for: Vec<String>,
    _profile: TempDir,
}

impl Browser {
    /// Opens the page of a server.
    pub fn open(address: SocketAddr, (width, height): (u32, u32)) -> Option<Browser> {
        let program = program()?;
        let profile = tempfile::tempdir().expect("a folder");
        // The protocol is spoken over the descriptors 3 and 4.
        let mut command = Command::new("sh");
        command.args(["-c", "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>/dev/null"]).arg(program);
        command.args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]);
        command.args(["--remote-debugging-pipe", "--disable-background-networking", "--disable-component-update"]);
        command.arg(format!("--user-data-dir={}", profile.path().display())).arg("about:blank");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("starts");
        let to = child.stdin.take().expect("piped");
        let mut out = BufReader::new(child.stdout.take().expect("piped"));
        let (sender, from) = channel();
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            while out.read_until(0, &mut bytes).is_ok_and(|length| length > 0) {
                bytes.pop();
                let message = serde_json::from_slice(&bytes).expect("JSON");
                bytes.clear();
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let (errors, asked_for) = (Vec::new(), Vec::new());
        let mut browser =
            Browser { child, to, from, asked: 0, session: Value::Null, errors, asked_for, _profile: profile };
        let target = browser.call("Target.createTarget", json!({"url": "about:blank"}));
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        browser.session = browser.call("Target.attachToTarget", attach)["sessionId"].clone();
        for domain in ["Runtime", "Log", "Network", "Page"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 700});
        browser.call("Emulation.setDeviceMetricsOverride", size);
        browser.call("Page.navigate", json!({"url": format!("http://{address}/")}));
        Some(browser)
    }

    /// Calls a method and waits for its result.
    #[track_caller]
    pub fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.asked += 1;
        let mut message = json!({"id": self.asked, "method": method, "params": parameters});
        if self.session.is_string() {
            message["sessionId"] = self.session.clone();
        }
        self.to.write_all(format!("{message}\0").as_bytes()).expect("the browser reads");
        loop {
            let message = self.from.recv_timeout(PATIENCE).unwrap_or_else(|error| panic!("{method}: {error}"));
            if message["id"] == json!(self.asked) {
                assert!(message.get("error").is_none(), "{method}: {message}");
                return message["result"].clone();
            }
            self.note(&message);
        }
    }

    fn note(&mut self, event: &Value) {
        let parameters = &event["params"];
        match event["method"].as_str() {
            Some("Runtime.exceptionThrown") => self.errors.push(parameters["exceptionDetails"].to_string()),
            // A status of the 400s is the server's answer and no fault of the page.
            Some("Log.entryAdded") if parameters["entry"]["source"] != "network" => {
                self.errors.push(parameters["entry"].to_string());
            }
            Some("Network.requestWillBeSent") => {
                self.asked_for.push(parameters["request"]["url"].as_str().unwrap_or_default().to_owned());
            }
            _ => {}
        }
    }

    /// The value of an expression in the page.
    #[track_caller]
    pub fn value(&mut self, expression: &str) -> Value {
        let parameters = json!({"expression": expression, "awaitPromise": true, "returnByValue": true});
        let found = self.call("Runtime.evaluate", parameters);
        assert!(found.get("exceptionDetails").is_none(), "{expression}: {found}");
        found["result"]["value"].clone()
    }

    /// Waits until an expression is true.
    #[track_caller]
    pub fn until(&mut self, expression: &str) {
        let begun = Instant::now();
        while self.value(expression) != json!(true) {
            if begun.elapsed() > PATIENCE {
                let seen = self.value("document.body.innerText");
                panic!("never {expression}: {seen}; {:?}", self.errors);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Clicks the middle of the first element of a selector, as a mouse does.
    #[track_caller]
    pub fn click(&mut self, selector: &str) {
        let place = self.place(selector);
        for (kind, buttons) in [("mousePressed", 1), ("mouseReleased", 0)] {
            let mut event = json!({"type": kind, "button": "left", "buttons": buttons, "clickCount": 1});
            event["x"] = place["x"].clone();
            event["y"] = place["y"].clone();
            self.call("Input.dispatchMouseEvent", event);
        }
    }

    /// Points at the middle of the first element of a selector.
    #[track_caller]
    pub fn point(&mut self, selector: &str) {
        let place = self.place(selector);
        self.call("Input.dispatchMouseEvent", json!({"type": "mouseMoved", "x": place["x"], "y": place["y"]}));
    }

    #[track_caller]
    fn place(&mut self, selector: &str) -> Value {
        let place = self.value(&format!(
            "(() => {{ const element = document.querySelector({}); element?.scrollIntoView({{ block: \"nearest\" }}); \
             const box = element?.getClientRects()[0]; \
             return box && {{ x: box.x + box.width / 2, y: box.y + box.height / 2 }}; }})()",
            json!(selector)
        ));
        assert!(place.is_object(), "{selector} is not to be seen");
        place
    }

    /// Types text where the focus is.
    pub fn insert(&mut self, text: &str) {
        self.call("Input.insertText", json!({"text": text}));
    }

    /// Presses a key, with Shift if `modifiers` is 8.
    pub fn press(&mut self, key: &str, modifiers: u32) {
        let code = match key {
            "Enter" => 13,
            "Escape" => 27,
            "ArrowRight" => 39,
            other => panic!("{other}"),
        };
        let mut event = json!({"key": key, "code": key, "windowsVirtualKeyCode": code, "modifiers": modifiers});
        for kind in ["keyDown", "keyUp"] {
            event["type"] = json!(kind);
            if key == "Enter" && kind == "keyDown" {
                event["text"] = json!("\r");
            }
            self.call("Input.dispatchKeyEvent", event.clone());
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
