use super::*;

/// A message being put together as the server does.
#[derive(Default)]
struct Sent(Vec<u8>);

impl Sent {
    fn kind(kind: u8) -> Self {
        Self(vec![kind])
    }

    fn byte(mut self, byte: u8) -> Self {
        self.0.push(byte);
        self
    }

    fn short(mut self, number: u16) -> Self {
        self.0.extend(number.to_be_bytes());
        self
    }

    fn number(mut self, number: u32) -> Self {
        self.0.extend(number.to_be_bytes());
        self
    }

    fn long(mut self, number: u64) -> Self {
        self.0.extend(number.to_be_bytes());
        self
    }

    fn name(mut self, name: &str) -> Self {
        self.0.extend(name.bytes().chain([0]));
        self
    }

    fn tuple(self, cells: &[Cell<'_>]) -> Self {
        cells.iter().fold(self.short(cells.len() as u16), |sent, cell| match cell {
            Cell::Null => sent.byte(b'n'),
            Cell::Unchanged => sent.byte(b'u'),
            Cell::Text(value) => sent.byte(b't').value(value),
            Cell::Binary(value) => sent.byte(b'b').value(value),
        })
    }

    fn value(self, value: &[u8]) -> Self {
        let mut sent = self.number(value.len() as u32);
        sent.0.extend(value);
        sent
    }
}

fn cells(tuple: Tuple<'_>) -> Vec<Cell<'_>> {
    tuple.cells().collect()
}

#[test]
fn each_message_is_read_to_its_end() {
    let relation = Sent::kind(b'R').number(7).name("").name("t").byte(b'd').short(2);
    let relation =
        relation.byte(1).name("id").number(23).number(u32::MAX).byte(0).name("v").number(1700).number(655_366);
    let columns = vec![
        RelationColumn { name: "id".into(), is_identity: true, type_oid: 23, modifier: -1 },
        RelationColumn { name: "v".into(), is_identity: false, type_oid: 1700, modifier: 655_366 },
    ];
    for (sent, expected) in [
        (
            Sent::kind(b'B').long(9).long(u64::MAX).number(5),
            Message::Begin { commit: Lsn(9), micros: -1, transaction: 5 },
        ),
        (
            Sent::kind(b'C').byte(0).long(9).long(12).long(3),
            Message::Commit { commit: Lsn(9), end: Lsn(12), micros: 3 },
        ),
        (Sent::kind(b'O').long(1).name("there"), Message::Origin { name: "there" }),
        (
            relation,
            Message::Relation(Relation {
                oid: 7,
                schema: "pg_catalog".into(),
                table: "t".into(),
                identity: b'd',
                columns,
            }),
        ),
        (Sent::kind(b'Y').number(16_400).name("public").name("mood"), Message::Type { oid: 16_400 }),
        (Sent::kind(b'T').number(2).byte(1).number(7).number(8), Message::Truncate { relations: vec![7, 8] }),
        (Sent::kind(b'M').byte(1).long(4).name("prefix").value(b"said"), Message::Logical),
    ] {
        assert_eq!(Message::read(&sent.0).unwrap(), expected);
        for end in 0..sent.0.len() {
            let error = Message::read(&sent.0[..end]).unwrap_err();
            assert!(error.message().contains("no message of pgoutput"), "{expected:?} cut at {end}");
        }
        assert!(Message::read(&sent.byte(0).0).is_err(), "{expected:?} with a byte more");
    }
}

#[test]
fn rows_keep_their_cells() {
    let row = [Cell::Text(b"1"), Cell::Null, Cell::Unchanged, Cell::Binary(&[0, 1]), Cell::Text(b"")];
    let key = [Cell::Text(b"0"), Cell::Null];
    let insert = Sent::kind(b'I').number(7).byte(b'N').tuple(&row).0;
    let Message::Insert { relation: 7, new } = Message::read(&insert).unwrap() else { panic!() };
    assert_eq!((cells(new), new.len()), (row.to_vec(), 5));

    let update = Sent::kind(b'U').number(7).byte(b'N').tuple(&row).0;
    let Message::Update { relation: 7, old: None, new } = Message::read(&update).unwrap() else { panic!() };
    assert_eq!(cells(new), row);

    for (mark, is_whole) in [(b'K', false), (b'O', true)] {
        let update = Sent::kind(b'U').number(7).byte(mark).tuple(&key).byte(b'N').tuple(&row).0;
        let Message::Update { old: Some(old), new, .. } = Message::read(&update).unwrap() else { panic!() };
        assert_eq!(
            (matches!(old, Old::Whole(_)), cells(old.tuple()), cells(new)),
            (is_whole, key.to_vec(), row.to_vec())
        );
        let delete = Sent::kind(b'D').number(7).byte(mark).tuple(&key).0;
        let Message::Delete { relation: 7, old } = Message::read(&delete).unwrap() else { panic!() };
        assert_eq!((matches!(old, Old::Whole(_)), cells(old.tuple())), (is_whole, key.to_vec()));
        for end in 0..delete.len() {
            assert!(Message::read(&delete[..end]).is_err());
        }
    }
}

#[test]
fn lengths_beyond_the_end_are_refused() {
    let huge = Sent::kind(b'I').number(7).byte(b'N').short(1).byte(b't').number(u32::MAX).0;
    assert!(Message::read(&huge).is_err());
    let endless = Sent::kind(b'T').number(u32::MAX).byte(0).number(7).0;
    assert!(Message::read(&endless).is_err());
    assert!(Message::read(b"S").is_err() && Message::read(b"").is_err());
}

#[test]
fn a_position_is_read_as_it_is_printed() {
    for (number, text) in [(0, "0/0"), (0x16_B374_D848, "16/B374D848"), (u64::MAX, "FFFFFFFF/FFFFFFFF")] {
        assert_eq!(Lsn(number).to_string(), text);
        assert_eq!(text.parse::<Lsn>().unwrap(), Lsn(number));
    }
    for text in ["", "0", "0/", "0/G", "1/100000000"] {
        assert!(text.parse::<Lsn>().is_err(), "{text}");
    }
}
