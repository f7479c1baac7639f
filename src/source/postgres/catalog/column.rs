//! A table's columns, and the view that they come to.

use arrow::datatypes::{DataType, Field, Schema};

use super::super::kinds::Kind;
use super::super::message::Relation;
use super::super::server::Session;
use super::kind::{self, NUMERIC, Resolved};
use super::name::quoted;
use crate::error::{Error, Result};
use crate::schema::View;

/// The types that the configuration gives columns instead of their own, by name.
///
/// `string` is a value's text as PostgreSQL prints it, whatever its type. A `numeric` may be a decimal.
pub(crate) type Wishes = [(String, DataType)];

/// A column of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Column {
    /// Its name.
    pub(crate) name: String,
    /// What its values are.
    pub(crate) kind: Kind,
    /// The function by which the server prints values of it that arrive as text wherever they are read.
    pub(super) printed: Option<String>,
    /// The function that prints its values; texts that may stand for one another are printed by one.
    pub(super) output: String,
    /// What the catalogs say: the number of the column, if it is known, and its type.
    pub(super) declared: (i16, u32, i32),
}

impl Column {
    /// The columns of rows in the log.
    pub(crate) async fn of_relation(session: &Session, relation: &Relation, wishes: &Wishes) -> Result<Vec<Self>> {
        let declared: Vec<_> = relation
            .columns
            .iter()
            .map(|column| (column.name.clone(), (0, column.type_oid, column.modifier)))
            .collect();
        Self::resolve(session, declared, wishes).await
    }

    /// Columns from what is declared of them.
    pub(super) async fn resolve(
        session: &Session,
        declared: Vec<(String, (i16, u32, i32))>,
        wishes: &Wishes,
    ) -> Result<Vec<Self>> {
        if let Some((unknown, _)) = wishes.iter().find(|(wish, _)| !declared.iter().any(|(name, _)| name == wish)) {
            return Err(Error::config(format!(
                "columns names the column {unknown:?}, which the table does not have or does not publish; remove it"
            )));
        }
        let types: Vec<_> = declared.iter().map(|(_, (_, oid, modifier))| (*oid, *modifier)).collect();
        let resolved = kind::resolve(session, &types).await?;
        declared
            .into_iter()
            .zip(resolved)
            .map(|((name, declared), found)| {
                let wish = wishes.iter().find(|(wish, _)| *wish == name).map(|(_, wish)| wish);
                let (kind, is_printed) = wished(&name, found.clone(), wish)?;
                let printed = is_printed.then(|| found.output.clone());
                let output = if found.is_plain_text() { "text".to_owned() } else { found.output };
                Ok(Self { name, kind, printed, output, declared })
            })
            .collect()
    }

    /// A column that arrives in its kind's own forms.
    #[cfg(test)]
    pub(in super::super) fn plain(name: &str, kind: Kind) -> Self {
        Self { name: name.into(), kind, printed: None, output: String::new(), declared: (0, 0, -1) }
    }

    /// A column that the server prints.
    #[cfg(test)]
    pub(in super::super) fn printed(name: &str, function: &str) -> Self {
        let (kind, printed, output) = (Kind::Text, Some(function.into()), String::new());
        Self { name: name.into(), kind, printed, output, declared: (0, 0, -1) }
    }

    /// What a statement selects, so that COPY in binary gives a value of the column in its kind's binary form or as text.
    pub(crate) fn selected(&self) -> String {
        let name = quoted(&self.name);
        match &self.printed {
            Some(function) => format!("{function}({name})"),
            None => name,
        }
    }

    /// Whether COPY gives the values as text.
    pub(crate) fn is_printed(&self) -> bool {
        self.printed.is_some()
    }
}

/// What a column is by the configuration's wish, and whether the server must print it.
fn wished(name: &str, found: Resolved, wish: Option<&DataType>) -> Result<(Kind, bool)> {
    match wish {
        None => Ok((found.kind, found.is_printed)),
        Some(wish) if *wish == found.kind.data_type() => Ok((found.kind, found.is_printed)),
        Some(DataType::Utf8) => Ok((Kind::Text, true)),
        Some(DataType::Decimal128(precision, scale)) if found.base == NUMERIC => {
            Ok((Kind::Decimal(*precision, *scale), false))
        }
        Some(wish) => {
            let own = found.kind.data_type();
            Err(Error::config(format!(
                "the column {name:?} is {} in PostgreSQL, and in a table {own} or a string, not {wish}; correct its type in columns",
                found.name
            )))
        }
    }
}

/// The view of these columns. Refused: a name or a type that a table cannot hold.
pub(crate) fn view_of(name: &str, columns: &[Column], key: &[String]) -> Result<View> {
    // A constraint may come and go without a row that changes, so a column outside the key never is what it says.
    let fields = columns.iter().map(|column| Field::new(&column.name, column.kind.data_type(), true));
    View::new(name, &Schema::new(fields.collect::<Vec<_>>()), key.to_vec())
}
