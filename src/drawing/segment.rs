//! What happened to a table, gathered to its generations.

/// Something that happened to a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Mark {
    /// A generation begins.
    Reload {
        /// Which.
        generation: u64,
        /// The step that it starts from.
        step: u64,
        /// Its rows, where they are known.
        rows: Option<u64>,
        /// Who asked for it, and why.
        by: Option<String>,
    },
    /// Changes of the steps after `from` up to `to`.
    Append {
        /// The generation that they belong to.
        generation: u64,
        /// The step before the first one.
        from: u64,
        /// The last step.
        to: u64,
        /// Their rows.
        rows: u64,
    },
    /// Steps up to `to` are in the table; how they came there is not known.
    Reached {
        /// The generation that they belong to.
        generation: u64,
        /// The last step.
        to: u64,
    },
    /// Somebody else's commit.
    Foreign(String),
    /// A commit that cannot be read, or trusted.
    Damaged(String),
    /// Continuity was lost.
    Lost(String),
}

/// A generation, or what happened before any that is known.
#[derive(Debug, Default)]
pub(super) struct Segment {
    pub(super) generation: Option<u64>,
    pub(super) from: u64,
    pub(super) to: u64,
    /// Whether its beginning is known.
    pub(super) is_whole: bool,
    /// What the reload says that begins it.
    pub(super) reload: Option<String>,
    pub(super) appends: Vec<Append>,
    /// What else happened, and at which step.
    pub(super) foreign: Vec<(u64, String)>,
    pub(super) damaged: Vec<(u64, String)>,
    pub(super) lost: Vec<(u64, String)>,
}

#[derive(Debug)]
pub(super) struct Append {
    pub(super) from: u64,
    pub(super) to: u64,
    rows: u64,
}

impl Append {
    pub(super) fn said(&self) -> String {
        format!("steps {} to {}, {} rows", self.from.saturating_add(1), self.to, self.rows)
    }
}

impl Segment {
    fn of(generation: u64, step: u64) -> Self {
        Self { generation: Some(generation), from: step, to: step, ..Self::default() }
    }

    pub(super) fn name(&self) -> String {
        self.generation.map_or("before".to_owned(), |generation| format!("gen {generation}"))
    }

    /// The whole in words.
    pub(super) fn said(&self) -> String {
        let mut said = match self.generation {
            Some(generation) => format!("Generation {generation}: steps {} to {}", self.from, self.to),
            None => "Before any generation".to_owned(),
        };
        let mut add = |words: String| said.push_str(&words);
        if let Some(reload) = &self.reload {
            add(format!(", {reload}"));
        } else if self.generation.is_some() {
            add(", its beginning is further back".to_owned());
        }
        if !self.appends.is_empty() {
            let rows: u64 = self.appends.iter().map(|a| a.rows).fold(0, u64::saturating_add);
            add(format!(", {} appends with {rows} rows", self.appends.len()));
        }
        for (several, what) in [(&self.foreign, "by others"), (&self.damaged, "damaged")] {
            if !several.is_empty() {
                add(format!(", {} commits {what}", several.len()));
            }
        }
        for (step, reason) in &self.lost {
            add(format!(", continuity lost at step {step}: {reason}"));
        }
        said
    }
}

/// The generations, oldest first.
pub(super) fn segments(marks: &[Mark]) -> Vec<Segment> {
    let mut segments: Vec<Segment> = Vec::new();
    for mark in marks {
        match mark {
            Mark::Reload { generation, step, rows, by } => {
                let rows = rows.map_or("rows".to_owned(), |rows| format!("{rows} rows"));
                let by = by.as_ref().map_or(String::new(), |by| format!(", {by}"));
                let reload = Some(format!("{rows} loaded at step {step}{by}"));
                segments.push(Segment { is_whole: true, reload, ..Segment::of(*generation, *step) });
            }
            Mark::Append { generation, from, to, rows } => {
                let append = Append { from: *from, to: *to, rows: *rows };
                with(&mut segments, *generation, *from, |last| {
                    if append.from != last.to {
                        last.lost.push((last.to, format!("an append starts at step {from}")));
                    }
                    last.to = last.to.max(append.to);
                    last.appends.push(append);
                });
            }
            Mark::Reached { generation, to } => {
                with(&mut segments, *generation, *to, |last| last.to = last.to.max(*to));
            }
            Mark::Foreign(said) => with_last(&mut segments, |last| last.foreign.push((last.to, said.clone()))),
            Mark::Damaged(said) => with_last(&mut segments, |last| last.damaged.push((last.to, said.clone()))),
            Mark::Lost(said) => with_last(&mut segments, |last| last.lost.push((last.to, said.clone()))),
        }
    }
    // What happened before any generation happened before its first step.
    let first = segments.iter().find(|s| s.generation.is_some()).map_or(0, |s| s.from);
    for before in segments.iter_mut().take_while(|s| s.generation.is_none()) {
        (before.from, before.to) = (first, first);
        let all = [&mut before.foreign, &mut before.damaged, &mut before.lost];
        all.into_iter().flatten().for_each(|(step, _)| *step = first);
    }
    segments
}

/// Changes the segment of `generation`, which begins at `from` where it has not begun.
fn with(segments: &mut Vec<Segment>, generation: u64, from: u64, change: impl FnOnce(&mut Segment)) {
    if segments.last().is_none_or(|last| last.generation != Some(generation)) {
        segments.push(Segment::of(generation, from));
    }
    with_last(segments, change);
}

fn with_last(segments: &mut Vec<Segment>, change: impl FnOnce(&mut Segment)) {
    if segments.is_empty() {
        segments.push(Segment::default());
    }
    if let Some(last) = segments.last_mut() {
        change(last);
    }
}
