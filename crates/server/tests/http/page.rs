//! The page: served without a key, whole, under a policy that keeps everything else out.

use crate::client::{Answer, request, send};
use crate::support::{Serving, tiny_server, tiny_setup};
use attend_server::Keys;
use serde_json::json;

/// What the shell is made of, read from the shell itself.
fn assets(serving: &Serving) -> Vec<String> {
    let mut found = vec!["/".to_owned()];
    let mut at = 0;
    while let Some(path) = found.get(at).cloned() {
        let text = serving.get(&path).body;
        let named = text.split('"').filter(|text| text.starts_with("/assets/") || text.starts_with("./"));
        for path in named.map(|path| path.replacen("./", "/assets/", 1)) {
            if !found.contains(&path) {
                found.push(path);
            }
        }
        at += 1;
    }
    found
}

fn kind(path: &str) -> &'static str {
    match path.rsplit_once('.').map(|(_, ending)| ending) {
        None => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some(other) => panic!("{other}"),
    }
}

#[test]
fn the_shell_needs_no_key_and_everything_else_does() {
    let mut setup = tiny_setup(json!({}), None);
    setup.keys = Keys::parse("secret").expect("a key");
    let serving = setup.start();
    let assets = assets(&serving);
    assert!(assets.iter().any(|path| path.ends_with(".js")) && assets.iter().any(|path| path.ends_with(".css")));
    for path in &assets {
        let answer = serving.get(path);
        assert_eq!((answer.status, answer.header("content-type")), (200, Some(kind(path))), "{path}");
        let policy = answer.header("content-security-policy").expect("a policy");
        let parts: Vec<&str> = policy.split(';').map(str::trim).collect();
        for part in ["default-src 'self'", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"] {
            assert!(parts.contains(&part), "{path}: {policy}");
        }
        assert!(!policy.contains("unsafe") && !policy.contains("script-src"), "{policy}");
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(answer.header("referrer-policy"), Some("no-referrer"));
        // Neither what the server has nor a key is in it.
        assert!(!answer.body.contains("secret") && !answer.body.contains("tiny"), "{path}");
    }
    for path in
        ["/assets/", "/assets/none.js", "/assets/../page.js", "/assets/%70age.js", "//", "/metrics", "/v1/models"]
    {
        serving.get(path).refused(401);
    }
}

#[test]
fn what_a_browser_has_is_not_sent_again() {
    let serving = tiny_server(json!({}), None);
    for path in assets(&serving) {
        let first = serving.get(&path);
        assert_eq!(first.header("cache-control"), Some("no-cache"));
        let tag = first.header("etag").expect("a tag").to_owned();
        let ask = |tag: &str| send(serving.address, &request("GET", &path, &[("If-None-Match", tag)], b""));
        let again = ask(&tag);
        assert_eq!((again.status, again.body.as_str(), again.header("etag")), (304, "", Some(tag.as_str())), "{path}");
        assert_eq!(ask("\"another\"").body, first.body);
    }
    assert_eq!(serving.get("/v1/models").header("cache-control"), Some("no-store"));
    serving.get("/assets/none.js").refused(404);
    assert_eq!(serving.post("/", &json!({})).status, 405);
    assert_eq!(send(serving.address, &request("HEAD", "/", &[], b"")).status, 200);
}

#[test]
fn the_shell_is_held_to_the_names_of_this_machine() {
    let serving = tiny_server(json!({}), None);
    let from = |header: (&str, &str)| -> Answer { send(serving.address, &request("GET", "/", &[header], b"")) };
    from(("Host", "evil.example")).refused(403);
    from(("Origin", "http://evil.example")).refused(403);
}

#[test]
fn the_page_has_a_second_address_for_its_routes() {
    let serving = tiny_server(json!({}), None);
    let (page, routes) = (serving.get("/"), serving.get("/docs"));
    assert_eq!((routes.status, &routes.body), (200, &page.body));
    assert_eq!(routes.header("content-security-policy"), page.header("content-security-policy"));
}

/// The page asks routes that there are.
#[test]
fn the_routes_that_the_page_asks_are_served() {
    let serving = tiny_server(json!({}), None);
    let mut asked = Vec::new();
    for path in assets(&serving).into_iter().filter(|path| path.ends_with(".js")) {
        let text = serving.get(&path).body;
        let routes = text.split('"').filter(|text| text.starts_with("/v1/")).map(str::to_owned);
        asked.extend(routes);
    }
    assert!(asked.len() > 10, "{asked:?}");
    for path in asked {
        let (get, post) = (serving.get(&path).status, serving.post(&path, &json!({})).status);
        assert!(get == 200 || post == 400, "{path}: {get}, {post}");
    }
}
