//! The page in a browser.

use serde_json::json;

use super::browser::Browser;
use super::ledger::Ledger;
use super::{FREE_RESETS, Home, connector};
use crate::program::{Chance, PATIENCE, wait_until};

const ARTICLE: &str = "article[data-name='p/rows/lake']";

fn within(part: &str) -> String {
    format!("{ARTICLE} {part}")
}

#[test]
fn the_page_lives_and_pauses_resumes_and_resets() {
    const TEST: &str = "the_page_lives_and_pauses_resumes_and_resets";
    let Some(browser) = Browser::find(TEST) else { return };
    let home = Home::new(&connector("lake", FREE_RESETS));
    let mut ledger = Ledger::new(Chance::new(TEST));
    let service = home.start();
    let lines = ledger.insert(500);
    service.push(ledger.step(), lines);
    service.arrives("lake", &ledger);

    browser.open(&service.url);
    browser.reads("#link", "live");
    browser.reads(&within(".state"), "following");
    browser.run("window.isTheSame = true");

    // What happens shows by itself.
    for _ in 0..3 {
        let lines = ledger.change(20);
        service.push(ledger.step(), lines);
    }
    browser.reads(&within("figcaption"), &format!("to {}.", ledger.step()));
    browser.reads("#summary", "1 healthy");

    browser.click(&within("[data-call=pause]"));
    browser.reads(&within(".state"), "paused");
    browser.reads(&within(".answer"), "Done.");
    browser.reads("#said", "p/rows/lake: paused");
    assert_eq!(service.status("lake")["state"], "paused");
    browser.click(&within("[data-call=resume]"));
    browser.reads(&within(".state"), "following");

    // A reset wants the name.
    browser.click(&within(".actions summary"));
    browser.write(&within("[name=reason]"), "looks wrong");
    browser.write(&within("[name=confirm]"), "p/rows/lak");
    assert_eq!(browser.run("return document.querySelector('.danger').disabled"), json!(true));
    let lines = ledger.change(20);
    service.push(ledger.step(), lines);
    browser.reads(&within("figcaption"), &format!("to {}.", ledger.step()));
    browser.write(&within("[name=confirm]"), "e");
    browser.click(&within(".danger"));
    browser.reads(&within(".answer"), "is accepted");
    browser.reads(&within("figcaption"), "generation 2");
    // The table holds it a moment before the journal does.
    let reset = || service.get(&service.of("lake", "/resets")).is(200).body[0].clone();
    assert!(wait_until(PATIENCE, || reset()["state"] == "committed"), "{}", reset());
    assert_eq!(reset()["why"], "looks wrong");

    let found = browser.run(
        "return [window.isTheSame, document.querySelectorAll('svg .lane').length, \
         document.querySelectorAll('svg .reload:not(.key)').length]",
    );
    assert_eq!(found, json!([true, 2, 2]), "the page was never loaded anew");
    service.stop();
    browser.reads("#link", "not live");
    home.check("lake", &ledger);
}

#[test]
fn the_page_asks_for_a_token_and_tells_nobody() {
    const TEST: &str = "the_page_asks_for_a_token_and_tells_nobody";
    let Some(browser) = Browser::find(TEST) else { return };
    let token = |name: &str, role: &str| {
        format!("[server.auth.tokens.{name}]\nrole = \"{role}\"\ntoken = \"{name}-0123456789abcdef\"\n")
    };
    let home = Home::new(&format!("{}{}{}", connector("lake", ""), token("eye", "read"), token("ops", "admin")));
    let service = home.start();
    browser.open(&service.url);
    assert_eq!(browser.text("article"), "");
    browser.write("#token", "wrong-0123456789abcdef");
    browser.click("#unlock button");
    browser.reads("#said", "does not know this token");
    browser.run("document.getElementById('token').value = ''");
    browser.write("#token", "ops-0123456789abcdef");
    browser.click("#unlock button");
    browser.reads("#link", "live");
    browser.reads(&within(".state"), "following");
    browser.click(&within("[data-call=pause]"));
    browser.reads(&within(".state"), "paused");
    // It is in no address, and is gone when it is to be forgotten.
    let requested = browser.run("return performance.getEntriesByType('resource').map((entry) => entry.name).join(' ')");
    assert!(!requested.as_str().unwrap().contains("0123456789abcdef"), "{requested}");
    browser.click("#forget");
    browser.reads("#unlock", "Token");
    assert_eq!(browser.run("return sessionStorage.length"), json!(0));
    service.stop();
}
