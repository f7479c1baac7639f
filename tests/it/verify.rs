//! Damage that `verify` finds, by version, and health that it leaves alone.
