//! What every code of this program means: a page each, for whoever meets it in an answer, a report or as an exit.
//!
//! Who names a code does it by [`known`] or `code!`, so that one without a page does not compile.

mod causes;
mod exits;
mod health;
mod kinds;
mod page;
mod pushes;
mod requests;
mod resets;
mod rules;
mod streams;

pub(crate) use page::Page;

/// Every page, the groups in the order in which they are listed.
const GROUPS: [&[Page]; 9] = [
    kinds::PAGES,
    causes::PAGES,
    rules::PAGES,
    health::PAGES,
    resets::PAGES,
    pushes::PAGES,
    streams::PAGES,
    requests::PAGES,
    exits::PAGES,
];

/// Every page.
pub(crate) fn pages() -> impl Iterator<Item = &'static Page> {
    GROUPS.into_iter().flatten()
}

/// The page about `code`.
pub(crate) const fn find(code: &str) -> Option<&'static Page> {
    let mut groups: &[&'static [Page]] = &GROUPS;
    while let [group, others @ ..] = groups {
        let mut pages: &'static [Page] = group;
        while let [page, more @ ..] = pages {
            if is_same(page.code, code) {
                return Some(page);
            }
            pages = more;
        }
        groups = others;
    }
    None
}

/// `code` itself; in a constant, one that no page is about does not compile.
pub(crate) const fn known(code: &'static str) -> &'static str {
    assert!(find(code).is_some(), "a code has no page in src/explain");
    code
}

/// A code that has a page.
macro_rules! code {
    ($code:literal) => {
        const { $crate::explain::known($code) }
    };
}
pub(crate) use code;

const fn is_same(one: &str, other: &str) -> bool {
    let (mut one, mut other) = (one.as_bytes(), other.as_bytes());
    loop {
        match (one, other) {
            ([], []) => return true,
            ([a, rest_a @ ..], [b, rest_b @ ..]) if *a == *b => (one, other) = (rest_a, rest_b),
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::error::{ErrorKind, Lost};

    #[test]
    fn each_code_has_one_page_and_each_page_says_everything() {
        let mut seen = BTreeSet::new();
        for page in pages() {
            assert!(seen.insert(page.code), "{} has two pages", page.code);
            assert_eq!(find(page.code), Some(page));
            for (what, text) in
                [("means", page.means), ("why", page.why), ("remedy", page.remedy), ("shows", page.shows)]
            {
                assert!(text.len() > 10 && !text.contains('\n'), "{} has no line of {what}: {text:?}", page.code);
                assert!(text.ends_with('.'), "{}: {what} is no sentence: {text:?}", page.code);
            }
        }
        assert_eq!(find("nonsense"), None);
    }

    #[test]
    fn whatever_ends_a_process_has_a_page_of_its_number() {
        for kind in ErrorKind::ALL {
            let page = find(&kind.exit_code().to_string());
            assert!(page.is_some_and(|page| page.means.contains(kind.name())), "{kind:?}: {page:?}");
            assert!(find(kind.name()).is_some(), "{kind:?}");
        }
        for lost in Lost::ALL {
            assert!(find(&lost.to_string()).is_some(), "{lost}");
        }
    }
}
