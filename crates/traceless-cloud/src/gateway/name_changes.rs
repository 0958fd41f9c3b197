//! Changes of names that are made together.

use super::draft::Draft;
use super::names::{Namespace, Object};
use super::record::Record;

/// Changes of names, in order, which [`Gateway::change_names`](super::Gateway::change_names) makes
/// together.
#[derive(Default)]
#[must_use]
pub struct NameChanges {
    records: Vec<Record>,
    /// The draft of one of the bound names, and the index of its record.
    draft: Option<(usize, Draft)>,
}

impl NameChanges {
    /// Binds a name to a draft, or to no blocks at all, and keeps a note with the name. Only one of
    /// the changes can have a draft.
    pub fn bind(
        &mut self,
        namespace: Namespace,
        name: &[u8],
        draft: Option<Draft>,
        note: &[u8],
    ) -> &mut Self {
        assert!(self.draft.is_none() || draft.is_none(), "one of the changes has a draft");
        if let Some(draft) = draft {
            self.draft = Some((self.records.len(), draft));
        }
        let object = Object { note: note.to_vec(), ..Object::default() };
        self.with(Record::Bind { namespace, name: name.to_vec(), object })
    }

    /// Removes a name. The caller makes dummy queries if a removal must look like a read.
    pub fn unbind(&mut self, namespace: Namespace, name: &[u8]) -> &mut Self {
        self.with(Record::Unbind { namespace, name: name.to_vec() })
    }

    /// Gives an object another name in its space.
    pub fn rename(&mut self, namespace: Namespace, from: &[u8], to: &[u8]) -> &mut Self {
        self.with(Record::Rename { namespace, from: from.to_vec(), to: to.to_vec() })
    }

    /// Replaces the note of a name.
    pub fn note(&mut self, namespace: Namespace, name: &[u8], note: &[u8]) -> &mut Self {
        self.with(Record::SetNote { namespace, name: name.to_vec(), note: note.to_vec() })
    }

    /// Makes an object of an upload's parts, and removes the upload.
    pub fn join(
        &mut self,
        upload: &[u8],
        parts: Vec<Vec<u8>>,
        name: &[u8],
        note: &[u8],
    ) -> &mut Self {
        let (upload, name, note) = (upload.to_vec(), name.to_vec(), note.to_vec());
        self.with(Record::Join { upload, parts, name, note })
    }

    /// The records, and the draft with the index of its record. The object there has no blocks yet.
    pub(super) fn into_parts(self) -> (Vec<Record>, Option<(usize, Draft)>) {
        (self.records, self.draft)
    }

    fn with(&mut self, record: Record) -> &mut Self {
        self.records.push(record);
        self
    }
}
