//! Rows in the shapes of TPC-H's lineitem, made up in memory; the same ones in every run.

use std::sync::Arc;

use arrow::array::{ArrayRef, Date32Builder, Decimal128Builder, Int64Builder, RecordBatch, StringBuilder};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};

/// The rows of scale factor 1, and its parts and suppliers.
const SCALE_ROWS: u64 = 6_000_000;
const SCALE_PARTS: u64 = 200_000;
const SCALE_SUPPLIERS: u64 = 10_000;
/// Days since 1970 of the first order, of the last one, and of the day that decides about flags.
const FIRST_ORDER: u64 = 8_035;
const ORDER_DAYS: u64 = 2_406;
const CURRENT: u64 = 9_298;
/// The bytes of the text from which comments are cut.
const TEXT_BYTES: usize = 8 << 20;

const INSTRUCTIONS: [&str; 4] = ["DELIVER IN PERSON", "COLLECT COD", "NONE", "TAKE BACK RETURN"];
const MODES: [&str; 7] = ["REG AIR", "AIR", "RAIL", "SHIP", "TRUCK", "MAIL", "FOB"];
const NOUNS: &str = "packages requests accounts deposits foxes ideas theodolites pinto_beans instructions dependencies \
    excuses platelets asymptotes courts dolphins multipliers sauternes warthogs frets dinos attainments somas braids \
    hockey_players frays warhorses dugouts notornis epitaphs pearls tithes waters orbits gifts sheaves depths \
    sentiments decoys realms pains grouches escapades";
const VERBS: &str = "sleep wake are cajole haggle nag use boost affix detect integrate maintain nod was lose sublate \
    solve thrash promise engage hinder print x-ray breach eat grow impress mold poach serve run dazzle snooze doze \
    unwind kindle play hang believe doubt";
const ADJECTIVES: &str = "furious sly careful blithe quick fluffy slow quiet ruthless thin close dogged daring brave \
    stealthy permanent enticing idle busy regular final ironic even bold silent special pending express unusual";
const ADVERBS: &str = "sometimes always never furiously slyly carefully blithely quickly fluffily slowly quietly \
    ruthlessly thinly closely doggedly daringly bravely stealthily permanently enticingly idly busily regularly \
    finally ironically evenly boldly silently";
const PREPOSITIONS: &str = "about above according_to across after against along among around at before beside between \
    by despite during except for from in inside into near of on outside over past since through to toward under \
    until upon without with";
const ENDS: &str = ". . . . ; : ? ! --";

/// Batches of rows, in the order of their keys.
pub(crate) struct Lineitem {
    schema: SchemaRef,
    text: Arc<str>,
    random: Random,
    left: u64,
    batch_rows: usize,
    parts: u64,
    suppliers: u64,
    order: u64,
    order_date: u64,
    lines: u64,
    line: u64,
}

impl Lineitem {
    /// `rows` rows in batches of `batch_rows`.
    pub(crate) fn new(rows: u64, batch_rows: usize) -> Self {
        let mut random = Random(42);
        let text = text(&mut random).into();
        let scaled = |of_one: u64| (of_one * rows / SCALE_ROWS).max(100);
        let (parts, suppliers) = (scaled(SCALE_PARTS), scaled(SCALE_SUPPLIERS));
        let (order, order_date, lines, line) = (0, 0, 0, 0);
        Self {
            schema: schema(),
            text,
            random,
            left: rows,
            batch_rows,
            parts,
            suppliers,
            order,
            order_date,
            lines,
            line,
        }
    }

    fn comment(&mut self) -> &str {
        let length = 10 + self.random.below(34) as usize;
        let from = self.random.below((self.text.len() - length) as u64) as usize;
        self.text.get(from..from + length).unwrap_or_default()
    }
}

/// The schema of all batches.
pub(crate) fn schema() -> SchemaRef {
    let money = DataType::Decimal128(15, 2);
    let fields = [
        ("l_orderkey", DataType::Int64),
        ("l_partkey", DataType::Int64),
        ("l_suppkey", DataType::Int64),
        ("l_linenumber", DataType::Int64),
        ("l_quantity", money.clone()),
        ("l_extendedprice", money.clone()),
        ("l_discount", money.clone()),
        ("l_tax", money),
        ("l_returnflag", DataType::Utf8),
        ("l_linestatus", DataType::Utf8),
        ("l_shipdate", DataType::Date32),
        ("l_commitdate", DataType::Date32),
        ("l_receiptdate", DataType::Date32),
        ("l_shipinstruct", DataType::Utf8),
        ("l_shipmode", DataType::Utf8),
        ("l_comment", DataType::Utf8),
    ];
    Arc::new(Schema::new(fields.map(|(name, kept)| Field::new(name, kept, true)).to_vec()))
}

impl Iterator for Lineitem {
    type Item = RecordBatch;

    fn next(&mut self) -> Option<RecordBatch> {
        let rows = self.left.min(self.batch_rows as u64);
        if rows == 0 {
            return None;
        }
        self.left -= rows;
        let mut integers: [Int64Builder; 4] = Default::default();
        let mut decimals: [Decimal128Builder; 4] =
            std::array::from_fn(|_| Decimal128Builder::new().with_data_type(DataType::Decimal128(15, 2)));
        let mut texts: [StringBuilder; 5] = Default::default();
        let mut dates: [Date32Builder; 3] = Default::default();
        for _ in 0..rows {
            if self.line == self.lines {
                self.order += 1;
                self.order_date = FIRST_ORDER + self.random.below(ORDER_DAYS - 151);
                (self.lines, self.line) = (1 + self.random.below(7), 0);
            }
            self.line += 1;
            // Of 32 keys the first eight are used.
            let key = (self.order / 8) * 32 + self.order % 8;
            let part = 1 + self.random.below(self.parts);
            let nth = self.random.below(4);
            let s = self.suppliers;
            let supplier = (part + nth * (s / 4 + (part - 1) / s)) % s + 1;
            for (column, value) in integers.iter_mut().zip([key, part, supplier, self.line]) {
                column.append_value(value as i64);
            }
            let quantity = 1 + self.random.below(50);
            let price = quantity * (90_000 + (part / 10) % 20_001 + 100 * (part % 1_000));
            let money = [quantity * 100, price, self.random.below(11), self.random.below(9)];
            for (column, value) in decimals.iter_mut().zip(money) {
                column.append_value(i128::from(value));
            }
            let ship = self.order_date + 1 + self.random.below(121);
            let commit = self.order_date + 30 + self.random.below(61);
            let receipt = ship + 1 + self.random.below(30);
            for (column, value) in dates.iter_mut().zip([ship, commit, receipt]) {
                column.append_value(value as i32);
            }
            let flag = match receipt <= CURRENT {
                true if self.random.below(2) == 0 => "R",
                true => "A",
                false => "N",
            };
            let status = if ship > CURRENT { "O" } else { "F" };
            let pick = |words: &[&'static str], at: u64| words.get(at as usize).copied().unwrap_or_default();
            let instruction = pick(&INSTRUCTIONS, self.random.below(4));
            let mode = pick(&MODES, self.random.below(7));
            let comment = self.comment();
            for (column, value) in texts.iter_mut().zip([flag, status, instruction, mode, comment]) {
                column.append_value(value);
            }
        }
        let [a, b, c, d] = integers.map(|mut column| Arc::new(column.finish()) as ArrayRef);
        let [e, f, g, h] = decimals.map(|mut column| Arc::new(column.finish()) as ArrayRef);
        let [i, j, n, o, p] = texts.map(|mut column| Arc::new(column.finish()) as ArrayRef);
        let [k, l, m] = dates.map(|mut column| Arc::new(column.finish()) as ArrayRef);
        let columns = vec![a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p];
        RecordBatch::try_new(Arc::clone(&self.schema), columns).ok()
    }
}

/// Sentences without sense.
fn text(random: &mut Random) -> String {
    let lists = [ADVERBS, ADJECTIVES, NOUNS, VERBS, PREPOSITIONS, ENDS];
    let [adverbs, adjectives, nouns, verbs, prepositions, ends] =
        lists.map(|l| l.split_whitespace().collect::<Vec<_>>());
    let mut text = String::with_capacity(TEXT_BYTES + 128);
    while text.len() < TEXT_BYTES {
        let mut phrase: Vec<&Vec<&str>> = Vec::new();
        let noun = |random: &mut Random, phrase: &mut Vec<_>| match random.below(4) {
            0 => phrase.push(&nouns),
            1 => phrase.extend([&adjectives, &nouns]),
            2 => phrase.extend([&adjectives, &adjectives, &nouns]),
            _ => phrase.extend([&adverbs, &adjectives, &nouns]),
        };
        noun(random, &mut phrase);
        phrase.push(&verbs);
        if random.below(2) == 0 {
            phrase.push(&adverbs);
        }
        if random.below(3) > 0 {
            phrase.push(&prepositions);
            noun(random, &mut phrase);
        }
        for list in phrase {
            let word = list.get(random.below(list.len() as u64) as usize).copied().unwrap_or_default();
            text.push_str(&word.replace('_', " "));
            text.push(' ');
        }
        text.pop();
        text.push_str(ends.get(random.below(ends.len() as u64) as usize).copied().unwrap_or_default());
        text.push(' ');
    }
    text
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
}
