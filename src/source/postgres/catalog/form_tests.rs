use super::*;

/// Parts with their files, and columns with their types and the transactions that wrote them, by their numbers.
fn form(files: &[(u32, u32)], columns: &[(i16, u32, &str)]) -> Form {
    let file = |(part, file): &(u32, u32)| File {
        part: *part,
        file: *file,
        is_adopted: false,
        is_part: *part != 1,
        writer: "6".into(),
        deep_writers: BTreeSet::from(["5".to_owned()]),
        links: Default::default(),
    };
    let entry = |(number, kind, written): &(i16, u32, &str)| Entry {
        name: format!("c{number}"),
        column: (*number, *kind, -1),
        written: (*written).into(),
        told: Some((kind.to_string(), kind.to_string())),
        is_filled: false,
    };
    Form { files: files.iter().map(file).collect(), columns: columns.iter().map(entry).collect(), ..Form::default() }
}

fn is_judged(before: &Form, later: &Form, kept: &[u32], expected: &str) {
    let verdict = before.compare(later, &kept.iter().copied().collect());
    let said = match &verdict {
        Verdict::Told => "told",
        Verdict::Untold(why) => why,
        Verdict::IfEmptied(_) => "if emptied",
    };
    assert!(said.contains(expected), "{expected:?}: {verdict:?} of {later:?}");
}

#[test]
fn what_the_log_does_not_tell_is_seen_in_the_catalogs() {
    let columns: &[(i16, u32, &str)] = &[(1, 23, "1"), (2, 25, "1")];
    let before = form(&[(1, 1)], columns);
    let named = |name: &str, mut form: Form| {
        form.columns[1].name = name.into();
        form
    };
    for (later, expected) in [
        (before.clone(), "told"),
        // TRUNCATE, or what only moves rows.
        (form(&[(1, 9)], columns), "told"),
        // SET NOT NULL.
        (form(&[(1, 1)], &[(1, 23, "8"), (2, 25, "1")]), "told"),
        // ADD COLUMN with a default that differs from row to row.
        (form(&[(1, 9)], &[(1, 23, "1"), (2, 25, "1"), (3, 23, "8")]), "told"),
        // Another type, of which the log tells, and another name.
        (form(&[(1, 9)], &[(1, 20, "8"), (2, 25, "1")]), "told"),
        (named("other", form(&[(1, 9)], &[(1, 20, "8"), (2, 25, "8")])), "told"),
        (form(&[(1, 9)], &[(1, 23, "8"), (2, 25, "1")]), "written anew"),
        (form(&[(1, 1)], &[(1, 23, "1"), (3, 25, "8")]), "told"),
        (named("c2", form(&[(1, 1)], &[(1, 23, "1"), (3, 25, "8")])), "dropped and made again"),
        (named("c2", form(&[(1, 1)], &[(1, 23, "1"), (3, 20, "8")])), "told"),
    ] {
        is_judged(&before, &later, &[], expected);
    }
    // A row from before is in the file: nothing was written anew.
    is_judged(&before, &form(&[(1, 9)], &[(1, 23, "8"), (2, 25, "1")]), &[1], "told");
    // The same values in a table, printed by another function.
    let mut printed = before.clone();
    printed.columns[1].told = Some(("25".into(), "other".into()));
    is_judged(&before, &printed, &[], "another type");
    printed.columns[1].column.0 = 3;
    is_judged(&before, &printed, &[], "dropped and made again");
    // A publication of all tables lets a table be unlogged for a while.
    let swept = Form { is_swept: true, ..form(&[(1, 9)], columns) };
    is_judged(&before, &swept, &[], "if emptied");
    is_judged(&before, &swept, &[1], "told");
}

#[test]
fn a_partition_is_explained_by_what_the_log_tells_of_the_whole_table() {
    let columns: &[(i16, u32, &str)] = &[(1, 23, "1")];
    let before = form(&[(2, 2), (3, 3)], columns);
    for (later, kept, expected) in [
        (form(&[(2, 2), (3, 3), (4, 4)], columns), &[][..], "told"),
        (form(&[(2, 2)], columns), &[], "detached or dropped"),
        (form(&[(2, 2), (3, 9)], columns), &[], "if emptied"),
        (form(&[(2, 8), (3, 9)], columns), &[], "if emptied"),
        (form(&[(2, 8), (3, 9)], columns), &[2], "if emptied"),
        (form(&[(2, 8), (3, 9)], columns), &[2, 3], "told"),
        // Made and emptied.
        (form(&[(2, 2), (3, 3), (4, 9)], columns), &[], "if emptied"),
        // A column was added by the one who wrote all of it.
        (form(&[(2, 8), (3, 9)], &[(1, 23, "1"), (2, 23, "5")]), &[], "told"),
        (form(&[(2, 8), (3, 9)], &[(1, 23, "1"), (2, 23, "6")]), &[], "if emptied"),
    ] {
        is_judged(&before, &later, kept, expected);
    }
    let mut attached = form(&[(2, 2), (3, 3), (4, 4)], columns);
    attached.files[2].is_adopted = true;
    is_judged(&before, &attached, &[], "attached");
    let Verdict::IfEmptied(writers) = before.compare(&form(&[(2, 2), (3, 9)], columns), &BTreeSet::new()) else {
        panic!("it is doubtful");
    };
    assert_eq!(writers, [BTreeSet::from(["5".to_owned(), "6".to_owned()])]);
}

#[test]
fn a_type_may_get_more_labels_and_no_other_ones() {
    let with = |is_open, members: &[(i64, &str)]| {
        let members = members.iter().map(|(number, member)| (*number, (*member).to_owned())).collect();
        let types = vec![Spelling { oid: 20_000, name: "mood".into(), is_open, members }];
        Form { types, ..Form::default() }
    };
    for (is_open, later, expected) in [
        (true, &[(1, "glad"), (2, "sad"), (3, "calm")][..], "told"),
        (true, &[(1, "happy"), (2, "sad")], "the type mood was altered"),
        (false, &[(1, "glad"), (2, "sad")], "told"),
        (false, &[(1, "glad"), (2, "sad"), (3, "calm")], "the type mood was altered"),
        (false, &[(1, "glad")], "the type mood was altered"),
    ] {
        is_judged(&with(is_open, &[(1, "glad"), (2, "sad")]), &with(is_open, later), &[], expected);
    }
}
