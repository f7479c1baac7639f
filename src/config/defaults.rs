//! `[defaults]`: what is said once for all.

use super::connector::Common;
use super::reset::ResetPart;
use super::section::Section;
use super::step_log::StepLogPart;

/// What is said for all connectors and views, as far as it is written.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Defaults {
    /// Of what any connector has.
    pub(super) connector: Common,
    /// Of resets.
    pub(super) reset: ResetPart,
    /// Of step logs.
    pub(super) step_log: StepLogPart,
}

impl Defaults {
    pub(super) fn read(mut defaults: Section<'_>) -> Self {
        let connector = defaults.section("connector").map(|mut connector| {
            let common = Common::read(&mut connector);
            connector.misplaced("reset", "stands one table higher, as [defaults.reset]");
            for key in ["step_log", "when_full"] {
                connector.misplaced(key, "stands one table higher, in [defaults.step_log]");
            }
            connector.finish(&[]);
            common
        });
        let reset = defaults.section("reset").map(|reset| ResetPart::default().overridden(reset));
        let step_log = defaults.section("step_log").map(StepLogPart::read);
        defaults.finish(&[]);
        Self {
            connector: connector.unwrap_or_default(),
            reset: reset.unwrap_or_default(),
            step_log: step_log.unwrap_or_default(),
        }
    }
}
