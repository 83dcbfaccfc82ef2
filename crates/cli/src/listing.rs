//! [`PagedTable`]: a table, or an array in JSON, that is written page by page as it comes, so that what it takes
//! does not grow with what is listed.

use serde::Serialize;

use model::text::printable;

use crate::screen::{Screen, ScreenError};
use crate::table::Columns;

/// A listing under way.
pub struct PagedTable<'h> {
    screen: Screen,
    headings: &'h [&'h str],
    columns: Columns,
    /// Items so far.
    count: usize,
}

impl<'h> PagedTable<'h> {
    /// Nothing is written before the first item.
    pub fn new(screen: Screen, headings: &'h [&'h str]) -> PagedTable<'h> {
        PagedTable { screen, headings, columns: Columns::default(), count: 0 }
    }

    /// Writes a page. Columns are as wide as the widest cell so far.
    ///
    /// # Errors
    /// When standard output cannot be written, or an item has no JSON form.
    pub fn page<T: Serialize, R: AsRef<[String]>>(
        &mut self,
        items: &[T],
        row: impl Fn(&T) -> R,
    ) -> Result<(), ScreenError> {
        if items.is_empty() {
            return Ok(());
        }
        let mut out = String::new();
        if self.screen.is_json() {
            for item in items {
                out += if self.count == 0 { "[\n" } else { ",\n" };
                let text = serde_json::to_string_pretty(item).map_err(ScreenError::Encode)?;
                out += &text.lines().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n");
                self.count += 1;
            }
        } else {
            let headings = if self.count == 0 { self.headings } else { &[] };
            out = self.columns.lines(headings, items.iter().map(row));
            // Causes and names come from nodes; they may not speak to the terminal.
            out = printable(&out).into_owned();
            self.count += items.len();
        }
        self.screen.text(&out)
    }

    /// Ends it: an empty one is its headings, or an empty array.
    ///
    /// # Errors
    /// As [`PagedTable::page`].
    pub fn end(mut self) -> Result<(), ScreenError> {
        match (self.screen.is_json(), self.count) {
            (true, 0) => self.screen.text("[]\n"),
            (true, _) => self.screen.text("\n]\n"),
            (false, 0) => {
                self.screen.text(&self.columns.lines(self.headings, std::iter::empty::<[String; 0]>()))
            }
            (false, _) => Ok(()),
        }
    }
}
