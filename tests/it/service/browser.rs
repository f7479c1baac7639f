//! A browser, driven over WebDriver: plain HTTP to Debian's chromedriver.

use std::io::Write as _;
use std::process::Command;

use reqwest::{Client, Method};
use serde_json::{Value, json};
use tempfile::{NamedTempFile, TempDir};

use crate::program::{PATIENCE, Running, wait_until};

/// The key under which an element's id is answered.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// A browser with one window; dropped, it is closed.
pub(super) struct Browser {
    runtime: tokio::runtime::Runtime,
    client: Client,
    /// Where the session's calls are.
    session: String,
    _driver: Running,
    _profile: TempDir,
}

impl Browser {
    /// Debian's Chromium. Without one, says that `test` is not run; where CI is set there must be one.
    pub(super) fn find(test: &str) -> Option<Self> {
        let is_there = |name: &str| Command::new(name).arg("--version").output().is_ok_and(|ran| ran.status.success());
        if !is_there("chromedriver") || !is_there("chromium") {
            assert!(
                std::env::var_os("CI").is_none(),
                "{test} needs a browser: apt-get install chromium chromium-driver"
            );
            // Not by a macro, whose words the test harness would keep to itself.
            let _ = writeln!(std::io::stderr(), "skipped: {test}; apt-get install chromium chromium-driver");
            return None;
        }
        let profile = TempDir::new().unwrap();
        let mut command = Command::new("chromedriver");
        command.arg("--port=0");
        let mut driver = Running::start(command, NamedTempFile::new().unwrap());
        let mut port = None;
        wait_until(PATIENCE, || {
            let said = driver.said();
            let rest = said.split("started successfully on port ").nth(1);
            port = rest.and_then(|rest| rest.split('.').next()?.parse::<u16>().ok());
            port.is_some() || driver.ended().is_some()
        });
        let Some(port) = port else { panic!("chromedriver does not start: {}", driver.said()) };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let client = Client::builder().no_proxy().timeout(PATIENCE).build().unwrap();
        let base = format!("http://127.0.0.1:{port}/session");
        let mut browser = Self { runtime, client, session: base, _driver: driver, _profile: profile };
        let profile = format!("--user-data-dir={}", browser._profile.path().display());
        let args = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", &profile];
        let wanted = json!({ "browserName": "chrome", "goog:chromeOptions": { "args": args } });
        let begun = browser.call(Method::POST, "", json!({ "capabilities": { "alwaysMatch": wanted } }));
        browser.session = format!("{}/{}", browser.session, begun["sessionId"].as_str().unwrap());
        Some(browser)
    }

    fn ask(&self, method: Method, path: &str, body: Value) -> Result<Value, Value> {
        let mut request = self.client.request(method.clone(), format!("{}{path}", self.session));
        if method == Method::POST {
            request = request.json(&body);
        }
        let answer: Value = self.runtime.block_on(async { request.send().await.unwrap().json().await.unwrap() });
        let value = answer["value"].clone();
        if value.get("error").is_some_and(Value::is_string) { Err(value) } else { Ok(value) }
    }

    fn call(&self, method: Method, path: &str, body: Value) -> Value {
        self.ask(method, path, body).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    pub(super) fn open(&self, url: &str) {
        self.call(Method::POST, "/url", json!({ "url": url }));
    }

    /// What a function's body gives back on the page.
    pub(super) fn run(&self, script: &str) -> Value {
        self.call(Method::POST, "/execute/sync", json!({ "script": script, "args": [] }))
    }

    fn find_element(&self, selector: &str) -> Result<String, Value> {
        let found = self.ask(Method::POST, "/element", json!({ "using": "css selector", "value": selector }))?;
        Ok(format!("/element/{}", found[ELEMENT].as_str().unwrap()))
    }

    /// Does something to an element as soon as it can be done: the page may be replacing it.
    fn act(&self, selector: &str, call: &str, body: &Value) {
        let mut failed = Value::Null;
        let done = wait_until(PATIENCE, || {
            let acted =
                self.find_element(selector).and_then(|e| self.ask(Method::POST, &format!("{e}{call}"), body.clone()));
            acted.map_err(|error| failed = error).is_ok()
        });
        assert!(done, "{selector}{call}: {failed}; {}", self.text("body"));
    }

    pub(super) fn click(&self, selector: &str) {
        self.act(selector, "/click", &json!({}));
    }

    pub(super) fn write(&self, selector: &str, text: &str) {
        self.act(selector, "/value", &json!({ "text": text }));
    }

    /// What is to be read in an element; empty where there is none.
    pub(super) fn text(&self, selector: &str) -> String {
        let read = self.find_element(selector).and_then(|e| self.ask(Method::GET, &format!("{e}/text"), Value::Null));
        read.ok().and_then(|text| text.as_str().map(str::to_owned)).unwrap_or_default()
    }

    /// Waits until `part` can be read in an element.
    pub(super) fn reads(&self, selector: &str, part: &str) {
        let reads = wait_until(PATIENCE, || self.text(selector).contains(part));
        assert!(reads, "{selector} does not say {part:?}: {}", self.text("body"));
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Otherwise the driver leaves its browser behind.
        let _ = self.ask(Method::DELETE, "", Value::Null);
    }
}
