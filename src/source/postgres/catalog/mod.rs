//! What the server's catalogs say of a table: its columns, what identifies its rows, where they stand.

mod column;
mod form;
mod kind;
mod name;
mod spelling;
mod table;

pub(crate) use column::{Column, Wishes, view_of};
pub(crate) use form::{Form, Verdict};
pub(crate) use name::TableName;
pub(crate) use name::quoted;
pub(crate) use table::Identity;
pub(crate) use table::Table;
