//! What a check of a history finds: broken rules, and the generations that it shows.

use std::fmt;

use crate::continuity::stamp::RowCounts;
use crate::explain::code;
use crate::generation::Generation;
use crate::step::Step;

/// A rule of the contract with readers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// A generation begins with one reload, after which the live files are that snapshot's.
    Reload,
    /// Each commit starts where the one before ended, in steps and in digests.
    Chain,
    /// Generations and epochs never decrease, and one epoch has one writer.
    Fence,
    /// Each data file is added once.
    Once,
    /// What others commit changes no row and nothing of ours.
    Drift,
    /// Counts, files and sizes are what the log says.
    Files,
    /// The table is ours, and of the contract that this program knows.
    Ours,
}

impl Rule {
    /// The rule in words, for people.
    pub fn words(self) -> &'static str {
        match self {
            Self::Reload => "a generation begins with one reload",
            Self::Chain => "each commit starts where the one before ended",
            Self::Fence => "one writer at a time",
            Self::Once => "each file is added once",
            Self::Drift => "others change no row and nothing of ours",
            Self::Files => "counts, files and sizes are what the log says",
            Self::Ours => "the table is ours, by a contract that is known",
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reload => code!("R1"),
            Self::Chain => code!("R2"),
            Self::Fence => code!("R3"),
            Self::Once => code!("R4"),
            Self::Drift => code!("R5"),
            Self::Files => code!("R6"),
            Self::Ours => code!("R7"),
        })
    }
}

/// A rule broken at a version.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// Where.
    pub version: u64,
    /// The generation that was current there.
    pub generation: Option<Generation>,
    /// Which rule.
    pub rule: Rule,
    /// The file that it is about, as the log or its folder spells it, where it is about one.
    pub file: Option<String>,
    /// What, with both values that disagree.
    pub message: String,
}

/// One generation as the log shows it.
#[derive(Debug, Clone, PartialEq)]
pub struct Segment {
    /// Which.
    pub generation: Generation,
    /// The reload's version; `None` when the log no longer has it.
    pub reload: Option<u64>,
    /// The cutover step; `None` when the log no longer has the reload.
    pub cutover: Option<Step>,
    /// The first version seen.
    pub first_version: u64,
    /// The last version seen.
    pub last_version: u64,
    /// The last step.
    pub last_step: Step,
    /// Commits of ours.
    pub commits: u64,
    /// Rows of all kinds in those commits.
    pub rows: RowCounts,
}
