//! What happens in the view of the demo: orders that come, and change.

use std::fmt::Write as _;

/// The rows of a step.
pub(super) const ROWS_A_STEP: u64 = 20_000;

const ITEMS: [&str; 6] = ["tea", "coffee", "cocoa", "sugar", "flour", "rice"];

/// What a step does with its rows.
#[derive(Debug, Clone, Copy)]
pub(super) enum Deed {
    /// They come.
    Insert,
    /// They get other values, which depend on the step.
    Update,
}

/// The lines of a step that does so with the rows from `first` on.
pub(super) fn lines(deed: Deed, first: u64, step: u64) -> String {
    let word = match deed {
        Deed::Insert => "insert",
        Deed::Update => "update",
    };
    let mut out = String::new();
    for (id, item) in (first..first + ROWS_A_STEP).zip(ITEMS.iter().cycle()) {
        // Numbers that do not repeat, so that files have a size.
        let mixed =
            (id + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23) ^ step.wrapping_mul(0x94d0_49bb_1331_11eb);
        let (cents, note) = (mixed % 1_000_000, mixed.wrapping_mul(0xbf58_476d_1ce4_e5b9));
        // A string is no place that a write can fail at.
        let _ = writeln!(
            out,
            r#"{{"{word}":{{"id":{id},"item":"{item}","amount":"{}.{:02}","note":"{note:016x}"}}}}"#,
            cents / 100,
            cents % 100
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn a_step_has_its_rows_and_an_update_other_values() {
        let parsed =
            |text: &str| -> Vec<Value> { text.lines().map(|line| serde_json::from_str(line).unwrap()).collect() };
        let (inserted, updated) = (parsed(&lines(Deed::Insert, 40, 1)), parsed(&lines(Deed::Update, 40, 2)));
        assert_eq!(inserted.len() as u64, ROWS_A_STEP);
        assert_eq!(inserted[3]["insert"]["id"], 43);
        assert_eq!(updated[3]["update"]["id"], 43);
        assert_ne!(inserted[3]["insert"]["note"], updated[3]["update"]["note"]);
    }
}
