//! A directory to which another system lands data.
