//! Changes of names by several reads and writes that are made together.

use super::Gateway;
use super::record::Record;
use crate::error::{Error, Result};

impl Gateway {
    /// Carries out work. Its changes of names are written as one record: after an error or a crash
    /// none of them was made. Not at a constant rate, where the time at which the state is saved
    /// would depend on the work.
    pub fn transact<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.constant_rate.is_some() || self.gathered.is_some() {
            return Err(Error::Parameters("no transaction at a constant rate, or in another one"));
        }
        self.gathered = Some(Vec::new());
        self.state.names.begin();
        let guard = OpenTransaction(self);
        let value = work(guard.0)?;
        let changes = guard.0.gathered.take().unwrap_or_default();
        guard.0.write_together(changes)?;
        guard.0.state.names.commit();
        Ok(value)
    }

    /// Keeps a record for the end of a transaction, if there is one and the record is of names.
    pub(super) fn gather(&mut self, record: &Record) -> bool {
        match &mut self.gathered {
            Some(gathered) if record.is_of_names() => {
                match record {
                    Record::Together { changes } => gathered.extend(changes.iter().cloned()),
                    one => gathered.push(one.clone()),
                }
                true
            }
            _ => false,
        }
    }

    /// Writes changes that were applied already.
    fn write_together(&mut self, changes: Vec<Record>) -> Result {
        match &mut self.journal {
            Some(journal) if !changes.is_empty() => {
                journal.append(&Record::Together { changes });
                journal.flush()
            }
            _ => Ok(()),
        }
    }
}

/// Takes the changes of a transaction back unless they were committed, also after a panic.
struct OpenTransaction<'a>(&'a mut Gateway);

impl Drop for OpenTransaction<'_> {
    fn drop(&mut self) {
        self.0.gathered = None;
        self.0.state.names.roll_back();
    }
}
