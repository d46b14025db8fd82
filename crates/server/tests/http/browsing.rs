//! The page in a browser, over a scripted model that says exactly what each needs.

use crate::browser::Browser;
use crate::calling::{CALLS, TEMPLATE, THINKS, babbling, fixed, telling, tool};
use crate::support::{Serving, Setup, golden_encoder, loader, told};
use attend_server::Keys;
use attend_testkit::skip;
use serde_json::{Value, json};
use tempfile::TempDir;

/// What the model `says`: paragraphs, code, and what a page must not take for its own.
const SAID: &[&str] = &["One", " <img src=x onerror=alert(1)>", "\n\n```html\n", "<b>two</b>", "\n```\n\n", "three"];

/// A folder with a model that says `tokens` to whatever it is told, and then ends or begins anew.
fn scripted(tokens: &[&str], ends: bool) -> TempDir {
    let words: Vec<&str> = ["?", "$"].iter().chain(tokens).chain(["END"].iter()).copied().collect();
    let last = words.len() as u32 - 1;
    let after = |id: u32| if id == last - 1 && !ends { 2 } else { (id + 1).min(last) };
    let follows: Vec<u32> = (0..=last).map(after).map(|next| next.max(2)).collect();
    let folder = told(&words, &follows, &[last]);
    std::fs::write(folder.path().join("chat_template.jinja"), "{{ messages[-1].content }} $").expect("written");
    let config = folder.path().join("config.json");
    let text = std::fs::read_to_string(&config).expect("read");
    std::fs::write(&config, text.replace("\"max_position_embeddings\":256", "\"max_position_embeddings\":200000"))
        .expect("written");
    folder
}

struct World {
    serving: Serving,
    _folders: [TempDir; 3],
}

fn world(keys: &str) -> World {
    let folders = [scripted(SAID, true), scripted(&["on", " and "], false), golden_encoder("bert-base")];
    let [says, goes, reads] = &folders;
    let models = vec![
        ("says", loader(says.path(), Some(1 << 28))),
        ("goes", loader(goes.path(), Some(1 << 28))),
        ("reads", loader(reads.path(), None)),
    ];
    let mut setup = Setup::new(models);
    if !keys.is_empty() {
        setup.keys = Keys::parse(keys).expect("keys");
    }
    World { serving: setup.ready(), _folders: folders }
}

fn open(serving: &Serving, size: (u32, u32)) -> Option<Browser> {
    let browser = Browser::open(serving.address, size);
    if browser.is_none() {
        skip("the page in a browser (there is no Chromium)");
    }
    browser
}

const READY: &str = "document.querySelector('#status')?.textContent === 'ready' && document.querySelector('.pane select').options.length === 2";
const DONE: &str = "document.querySelector('.message.assistant') !== null && !document.querySelector('.busy')";

fn send(browser: &mut Browser, text: &str) {
    browser.click("#prompt");
    browser.insert(text);
    browser.press("Enter", 0);
}

/// The text of the last element of a selector.
fn last(browser: &mut Browser, selector: &str) -> String {
    let found = browser.value(&format!("[...document.querySelectorAll({})].at(-1)?.textContent", json!(selector)));
    found.as_str().unwrap_or_else(|| panic!("no {selector}")).to_owned()
}

/// Nothing went wrong in the page, and it asked its own server only.
#[track_caller]
fn was_well(mut browser: Browser, serving: &Serving) {
    browser.value("1");
    assert_eq!(browser.errors, Vec::<String>::new());
    let own = format!("http://{}/", serving.address);
    assert!(browser.asked_for.iter().all(|address| address.starts_with(&own)), "{:?}", browser.asked_for);
    assert!(!serving.log.text().contains("panicked"));
}

#[test]
#[ignore = "needs Chromium"]
fn a_conversation() {
    let world = world("");
    let Some(mut browser) = open(&world.serving, (1280, 800)) else { return };
    browser.until(READY);
    send(&mut browser, "hello");
    browser.until(DONE);
    // What a model writes is text, whatever it looks like.
    assert_eq!(last(&mut browser, ".prose p"), "three");
    assert_eq!(last(&mut browser, ".prose pre"), "<b>two</b>");
    assert!(browser.value("document.querySelector('.prose').textContent").to_string().contains("<img src=x onerror"));
    assert_eq!(browser.value("document.querySelectorAll('.log img, .log b').length"), json!(0));
    assert!(last(&mut browser, ".notes").contains("7 written"), "{}", last(&mut browser, ".notes"));
    // A line may be broken without being sent, and what was said may be said anew.
    browser.click("#prompt");
    browser.insert("two");
    browser.press("Enter", 8);
    browser.insert("lines");
    assert_eq!(browser.value("document.querySelector('#prompt').value"), json!("two\nlines"));
    browser.press("Enter", 0);
    browser.until("document.querySelectorAll('.message').length === 4 && !document.querySelector('.busy')");
    browser.click(".message.user .foot button");
    browser.insert(" again");
    browser.press("Enter", 0);
    browser.until("document.querySelectorAll('.message').length === 2 && !document.querySelector('.busy')");
    assert_eq!(last(&mut browser, ".message.user .body"), "hello again");
    browser.value("document.querySelector('.message.assistant').dataset.old = 'yes'");
    browser.click(".message.assistant .foot button");
    browser.until("document.querySelector('.message.assistant:not([data-old])') && !document.querySelector('.busy')");
    assert_eq!(last(&mut browser, ".prose p"), "three");
    // It is there when the page is loaded again, and gone when it is not wanted.
    browser.call("Page.reload", json!({}));
    browser.until(READY);
    browser.until("document.querySelectorAll('.message').length === 2");
    browser.click("#fresh");
    browser.until("document.querySelectorAll('.message').length === 0");
    was_well(browser, &world.serving);
}

#[test]
#[ignore = "needs Chromium"]
fn two_beside_each_other_with_probabilities_and_a_stop() {
    let world = world("");
    let Some(mut browser) = open(&world.serving, (1280, 800)) else { return };
    browser.until(READY);
    browser.click("#compare");
    browser.until("document.querySelectorAll('.pane').length === 2");
    let choose = "document.querySelectorAll('.pane')[1].querySelector('select')";
    browser.value(&format!("{choose}.value = 'goes'; {choose}.dispatchEvent(new Event('change'))"));
    browser.click(".pane-head button");
    browser.click("[name=probabilities]");
    browser.click(".pane-head button");
    // The second goes on for as long as it may.
    browser.value("(() => { const input = document.querySelectorAll('[name=max_tokens]')[1]; input.value = ''; input.dispatchEvent(new Event('input')); })()");
    send(&mut browser, "hello");
    browser.until("document.querySelectorAll('.tokens .token').length === 6");
    browser.until("document.querySelectorAll('.pane')[1].querySelector('.prose')?.textContent.length > 40");
    world.serving.until("running", || world.serving.figure("requests_running") >= 1.0);
    browser.until("document.querySelector('#figures').textContent.includes('1 running')");
    browser.press("Escape", 0);
    browser.until("!document.querySelector('.busy') && document.querySelector('#stop').hidden");
    world.serving.until_idle();
    assert!(last(&mut browser, ".notes").contains("stopped"));
    // Each token shows what else there was, to the mouse and to the keyboard.
    browser.point(".token");
    browser.until("!document.querySelector('#tip').hidden");
    let rows = browser.value("document.querySelectorAll('#tip li').length");
    assert!(rows.as_u64() >= Some(5), "{rows}");
    assert_eq!(last(&mut browser, "#tip .own code"), SAID[0]);
    browser.value("document.querySelector('.tokens').focus()");
    browser.press("ArrowRight", 0);
    browser.until(&format!("document.querySelector('#tip .own code').textContent === {}", json!(SAID[1])));
    was_well(browser, &world.serving);
}

#[test]
#[ignore = "needs Chromium"]
fn a_key_is_asked_for_and_kept_in_the_tab() {
    let world = world("secret");
    let Some(mut browser) = open(&world.serving, (1280, 800)) else { return };
    browser.until("document.querySelector('#key-dialog')?.open");
    assert_eq!(browser.value("document.querySelector('.pane select').options.length"), json!(0));
    browser.click("#key-value");
    browser.insert("secret");
    browser.press("Enter", 0);
    browser.until(READY);
    send(&mut browser, "hello");
    browser.until(DONE);
    assert_eq!(last(&mut browser, ".prose p"), "three");
    assert_eq!(browser.value("JSON.stringify(localStorage).includes('secret')"), json!(false));
    assert_eq!(browser.value("sessionStorage.getItem('attend.key')"), json!("\"secret\""));
    assert_eq!(browser.value("location.href.includes('secret') || document.cookie"), json!(""));
    was_well(browser, &world.serving);
}

#[test]
#[ignore = "needs Chromium"]
fn tasks_and_a_narrow_screen() {
    let world = world("");
    let Some(mut browser) = open(&world.serving, (390, 844)) else { return };
    browser.until(READY);
    let fits = "document.documentElement.scrollWidth <= 390 && [...document.querySelectorAll('button, select, textarea')]\
                .filter((element) => element.offsetParent && !element.closest('.list'))\
                .every((element) => element.getBoundingClientRect().right <= 390)";
    assert_eq!(browser.value(fits), json!(true));
    browser.click(".pane-head button");
    assert_eq!(browser.value(fits), json!(true));
    browser.click("#tab-tasks");
    let choose = "document.querySelector('.task select')";
    browser.value(&format!("{choose}.value = 'reads'"));
    browser.value("document.querySelector('.task textarea').value = 't5 t6\\nt5 t6\\nt9 t10 t11'");
    browser.click(".task button[type=submit]");
    browser.until("document.querySelector('.out .likeness') !== null");
    assert_eq!(browser.value("document.querySelectorAll('.heat').length"), json!(9));
    assert_eq!(browser.value("document.querySelectorAll('.heat')[1].textContent"), json!("1.00"));
    assert_eq!(browser.value(fits), json!(true));
    // A refusal is shown in the server's words.
    browser.value("document.querySelector('.task textarea').value = ''");
    browser.click(".task button[type=submit]");
    browser.until("document.querySelector('.out .error')?.textContent.includes('input')");
    was_well(browser, &world.serving);
}

#[test]
#[ignore = "needs Chromium"]
fn every_route_can_be_tried() {
    let world = world("");
    let Some(mut browser) = open(&world.serving, (1280, 800)) else { return };
    browser.until(READY);
    browser.click("#tab-routes");
    browser.until("document.querySelector('.route textarea')?.value.includes('messages')");
    let count = browser.value("document.querySelectorAll('.paths button').length");
    let document = world.serving.get("/openapi.json").good();
    let methods = |path: &Value| path.as_object().expect("methods").len();
    assert_eq!(count, json!(document["paths"].as_object().expect("paths").values().map(methods).sum::<usize>()));
    browser.click(".route button[type=submit]");
    browser.until("document.querySelector('.route pre')?.textContent.includes('\"finish_reason\": \"stop\"')");
    assert!(last(&mut browser, ".route [role=status]").starts_with("200 OK, "));
    assert!(last(&mut browser, ".route pre").contains("<b>two</b>"), "text, not HTML");
    // A click puts a field into the body; a stream is shown as it comes.
    browser.value(
        "[...document.querySelectorAll('.fields button')].find(({ textContent }) => textContent === 'stream').click()",
    );
    browser.until("document.querySelector('.route textarea').value.includes('\"stream\": true')");
    browser.click(".route button[type=submit]");
    browser.until("document.querySelector('.route pre')?.textContent.includes('data: [DONE]')");
    // What is wrong is said.
    browser.value("document.querySelector('.route textarea').value = '{'");
    browser.click(".route button[type=submit]");
    browser.until("document.querySelector('.out .error')?.textContent.includes('no JSON')");
    browser.value("document.querySelector('.route textarea').value = '{}'");
    browser.click(".route button[type=submit]");
    browser.until("document.querySelector('.out .error')?.textContent.startsWith('400 ')");
    // One whose body is a list.
    browser.value(
        "[...document.querySelectorAll('.paths button')].find(({ textContent }) => textContent === 'POST /lora-adapters').click()",
    );
    browser.until("document.querySelector('.route textarea')?.value.includes('\"scale\": 1')");
    // One without a body.
    browser.value(
        "[...document.querySelectorAll('.paths button')].find(({ textContent }) => textContent === '/metrics').click()",
    );
    browser.click(".route button[type=submit]");
    browser.until("document.querySelector('.route pre')?.textContent.includes('attend_model_loaded')");
    was_well(browser, &world.serving);
}

#[test]
#[ignore = "needs Chromium"]
fn an_answer_of_a_schema() {
    let serving = babbling(TEMPLATE);
    let Some(mut browser) = open(&serving, (1280, 800)) else { return };
    browser.until("document.querySelector('#status')?.textContent === 'ready'");
    browser.click(".pane-head button");
    assert_eq!(browser.value("document.querySelector('[name=schema]').offsetParent"), Value::Null);
    let choose = "document.querySelector('[name=format]')";
    browser.value(&format!("{choose}.value = 'json_schema'; {choose}.dispatchEvent(new Event('change'))"));
    // What is no JSON is said before anything is asked.
    browser.click("[name=schema]");
    browser.insert("{\"type\": ");
    send(&mut browser, "call");
    browser.until("document.querySelector('.message .error') !== null");
    assert!(last(&mut browser, ".message .error").contains("is not valid JSON"));
    browser.value("document.querySelector('[name=schema]').select()");
    browser.click("[name=schema]");
    browser.value("document.querySelector('[name=schema]').select()");
    browser.insert(&fixed().to_string());
    browser.click("#fresh");
    browser.until("document.querySelectorAll('.message').length === 0");
    send(&mut browser, "call");
    browser.until(DONE);
    let said: Value = serde_json::from_str(&last(&mut browser, ".prose")).expect("JSON");
    assert_eq!(said, json!({"city": "Paris"}));
    assert!(last(&mut browser, ".summary").contains("JSON of a schema"));
    was_well(browser, &serving);
}

#[test]
#[ignore = "needs Chromium"]
fn thoughts_are_folded_and_calls_are_shown() {
    let serving = telling(TEMPLATE, &[&THINKS, &CALLS], &[]);
    let Some(mut browser) = open(&serving, (1280, 800)) else { return };
    browser.until("document.querySelector('#status')?.textContent === 'ready'");
    send(&mut browser, "think");
    browser.until(DONE);
    assert_eq!(last(&mut browser, ".prose").trim(), "Yes.");
    assert_eq!(last(&mut browser, ".thought").trim(), "Hmm.");
    let open = "document.querySelector('details').open";
    assert_eq!(browser.value("document.querySelector('details').hidden"), json!(false));
    assert_eq!(browser.value(open), json!(false));
    browser.click("summary");
    assert_eq!(browser.value(open), json!(true));
    // The page offers no functions of its own; what a server hands out is shown nevertheless.
    let tools = json!([tool()]);
    browser.value(&format!(
        "(() => {{ const own = window.fetch; window.fetch = (path, options) => own(path, options?.body ? \
         {{ ...options, body: JSON.stringify({{ ...JSON.parse(options.body), tools: {tools} }}) }} : options); }})()"
    ));
    send(&mut browser, "call");
    browser.until("document.querySelectorAll('.message').length === 4 && !document.querySelector('.busy')");
    assert_eq!(last(&mut browser, ".prose").trim(), "I look.");
    assert_eq!(last(&mut browser, ".message pre"), "weather({\"city\": \"Paris\"})");
    // Both are there when the page is loaded again.
    browser.call("Page.reload", json!({}));
    browser.until("document.querySelectorAll('.message').length === 4");
    assert_eq!(last(&mut browser, ".message pre"), "weather({\"city\": \"Paris\"})");
    assert_eq!(browser.value("document.querySelector('.thought').textContent.trim()"), json!("Hmm."));
    was_well(browser, &serving);
}
