use std::collections::BTreeMap;

use proptest::prelude::*;
use quick_xml::Reader;
use quick_xml::events::Event;

use super::*;

/// How many elements of each class there are; an error where it is no XML.
fn classes(svg: &str) -> BTreeMap<String, usize> {
    let mut reader = Reader::from_str(svg);
    reader.config_mut().check_comments = true;
    let (mut found, mut depth) = (BTreeMap::new(), 0);
    loop {
        match reader.read_event().unwrap() {
            Event::Start(element) => {
                depth += 1;
                for attribute in element.attributes() {
                    let attribute = attribute.unwrap();
                    let value = attribute.unescape_value().unwrap();
                    if attribute.key.as_ref() == b"class" {
                        value.split(' ').for_each(|c| *found.entry(c.to_owned()).or_default() += 1);
                    }
                    assert!(attribute.key.as_ref() != b"style" && !attribute.key.as_ref().starts_with(b"on"), "{svg}");
                }
                *found.entry(format!("<{}>", String::from_utf8_lossy(element.name().as_ref()))).or_default() += 1;
            }
            Event::End(_) => depth -= 1,
            Event::Eof => break,
            Event::Empty(element) => panic!("{element:?} is written as others read it"),
            _ => {}
        }
    }
    assert_eq!(depth, 0);
    found
}

fn drawn(marks: &[Mark], style: Style) -> String {
    Picture { id: "x", title: "t", marks, style }.svg().into_string()
}

fn mark() -> impl Strategy<Value = Mark> {
    let number = prop_oneof![0..20u64, 0..=i64::MAX as u64];
    prop_oneof![
        (1..5u64, number.clone(), any::<Option<u64>>(), any::<Option<String>>())
            .prop_map(|(generation, step, rows, by)| Mark::Reload { generation, step, rows, by }),
        (1..5u64, number.clone(), number.clone(), any::<u64>()).prop_map(|(generation, from, to, rows)| Mark::Append {
            generation,
            from,
            to,
            rows
        }),
        (1..5u64, number).prop_map(|(generation, to)| Mark::Reached { generation, to }),
        any::<String>().prop_map(Mark::Foreign),
        any::<String>().prop_map(Mark::Damaged),
        any::<String>().prop_map(Mark::Lost),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn any_history_is_well_formed_and_all_of_it_is_drawn(marks in prop::collection::vec(mark(), 0..40)) {
        let svg = drawn(&marks, Style::Own);
        prop_assert_eq!(&svg, &drawn(&marks, Style::Own), "the same history is the same picture");
        let classes = classes(&svg);
        // Keys of the legend have the classes of what they explain.
        let keys = |class: &str| usize::from(svg.contains(&format!("class=\"key {class}")));
        let count = |class: &str| classes.get(class).copied().unwrap_or(0) - keys(class);
        let has = |is: fn(&Mark) -> bool| marks.iter().filter(|m| is(m)).count();
        prop_assert_eq!(count("lane"), segments(&marks).len());
        prop_assert_eq!(count("segment"), segments(&marks).len());
        prop_assert_eq!(count("reload"), has(|m| matches!(m, Mark::Reload { .. })));
        prop_assert_eq!(count("append"), has(|m| matches!(m, Mark::Append { .. })));
        prop_assert_eq!(count("foreign"), has(|m| matches!(m, Mark::Foreign(_))));
        prop_assert_eq!(count("damaged"), has(|m| matches!(m, Mark::Damaged(_))));
        prop_assert!(count("lost") >= has(|m| matches!(m, Mark::Lost(_))));
        prop_assert!(!svg.contains("NaN") && !svg.contains("inf"), "{}", svg);
        prop_assert!(!svg.contains("<script"), "{}", svg);
    }
}

fn reload(generation: u64, step: u64) -> Mark {
    Mark::Reload { generation, step, rows: Some(2), by: None }
}

fn append(generation: u64, from: u64, to: u64) -> Mark {
    Mark::Append { generation, from, to, rows: 3 }
}

#[test]
fn generations_are_segments_and_a_gap_is_lost_continuity() {
    let marks = [
        reload(1, 100),
        append(1, 100, 110),
        append(1, 110, 140),
        Mark::Foreign("OPTIMIZE".into()),
        append(1, 150, 160),
        reload(2, 170),
        append(2, 170, 171),
    ];
    let found = segments(&marks);
    let ends: Vec<_> = found.iter().map(|s| (s.generation, s.from, s.to, s.appends.len(), s.lost.len())).collect();
    assert_eq!(ends, [(Some(1), 100, 160, 3, 1), (Some(2), 170, 171, 1, 0)]);
    assert_eq!(found[0].foreign, [(140, "OPTIMIZE".to_owned())]);
    assert_eq!(
        found[0].said(),
        "Generation 1: steps 100 to 160, 2 rows loaded at step 100, 3 appends with 9 rows, 1 commits by others, \
         continuity lost at step 140: an append starts at step 150"
    );
}

#[test]
fn a_generation_whose_beginning_is_not_known_says_so() {
    let found = segments(&[Mark::Foreign("WRITE".into()), append(3, 7, 9), Mark::Reached { generation: 3, to: 12 }]);
    assert_eq!(found.iter().map(|s| (s.from, s.to, s.is_whole)).collect::<Vec<_>>(), [(7, 7, false), (7, 12, false)]);
    assert!(found[1].said().contains("its beginning is further back"), "{}", found[1].said());
}

#[test]
fn words_are_escaped_and_readers_of_screens_get_them() {
    let lost = Mark::Lost("<script>\"&'\u{1}\u{ffff}".into());
    let svg = drawn(&[reload(1, 5), lost], Style::Page);
    classes(&svg);
    assert!(svg.contains("&lt;script&gt;&quot;&amp;") && !svg.contains('\u{1}') && !svg.contains('\u{ffff}'), "{svg}");
    assert!(svg.contains("role=\"img\"") && svg.contains("aria-labelledby=\"x-title x-desc\""), "{svg}");
    assert!(svg.contains("<title id=\"x-title\">t</title>") && !svg.contains("<style"), "{svg}");
    assert!(drawn(&[], Style::Own).contains("prefers-color-scheme: dark"));
}
