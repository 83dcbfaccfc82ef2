//! The backend of the users' objects: a folder or the agent's own store, opened for a mode.

use std::path::Path;

use backends::{Backend, Embedded, Folder};
use model::replication::Mode;
use model::{Kind, ObjectKey};
use sync::{Side, object};

use super::reconciler::{OpenedBackend, Reconciler};
use crate::render::chain;

impl Reconciler {
    /// Opens the backend of the policy anew.
    pub(super) fn open_backend(&mut self) {
        let folder = self.policy.folder.as_ref();
        let name = folder.map_or("the agent's store".to_owned(), |folder| format!("folder {folder}"));
        self.show(&[]);
        self.opened = OpenedBackend { name, ..OpenedBackend::default() };
        match self.open_for_mode() {
            Ok(backend) => self.opened.backend = backend,
            Err(why) => {
                self.problem(&self.opened.name, Some(why.clone()));
                self.report(Some(self.unusable(&why)));
                self.opened.unusable = Some(why);
                self.reconcile_again();
            }
        }
    }

    fn open_for_mode(&mut self) -> Result<Option<Box<dyn Backend>>, String> {
        if self.policy.mode == Mode::Off {
            return Ok(None);
        }
        let mut backend: Box<dyn Backend> = match &self.policy.folder {
            None => Box::new(self.embedded()?),
            Some(folder) => {
                let path = self.context.root.join(folder.trim_start_matches('/'));
                let state = self.context.durable.path();
                if path.starts_with(state) || state.starts_with(&path) {
                    return Err(format!("{folder} and the agent's own state lie in one another"));
                }
                self.first_time(folder, &path)?;
                Box::new(Folder::new(&path))
            }
        };
        if self.policy.mode == Mode::Autonomous {
            let own = |key: &ObjectKey| !object::is_status(&key.section.kind);
            let known = self.context.sets.stubs(Side::Feed, own);
            known.iter().for_each(|(key, stub)| backend.assign_uid(key, &stub.uid));
        }
        let mailbox = self.context.operations.mailbox();
        let changed = Box::new(move || mailbox.post(|waiting| waiting.changed = true));
        backend.watch(changed).map_err(|error| error.to_string())?;
        Ok(Some(backend))
    }

    /// A folder that the control plane is to fill is made, if it was never there. One that was
    /// there and is gone may be unmounted: it is not made again. A node's own folder is the
    /// node's to make.
    fn first_time(&self, folder: &str, path: &Path) -> Result<(), String> {
        let known = self.context.durable.knows_folder(folder).map_err(|error| chain(&error))?;
        if known || (self.policy.mode != Mode::Managed && !path.is_dir()) {
            return Ok(());
        }
        if self.policy.mode == Mode::Managed && Folder::make(path).map_err(|error| error.to_string())? {
            tracing::info!(folder, "the folder of manifests was not there, and is made");
        }
        self.context.durable.keep_folder(folder).map_err(|error| chain(&error))
    }

    /// The embedded backend with what it had: the replica, or the own set.
    fn embedded(&self) -> Result<Embedded, String> {
        let managed = self.policy.mode == Mode::Managed;
        let side = if managed { Side::Replica } else { Side::Feed };
        let plain = |kind: &Kind| kind.as_str() != Kind::ACTION && !object::is_status(kind);
        let objects = self.context.sets.objects(side, |key| plain(&key.section.kind));
        let mut embedded = Embedded::default();
        for (key, stub, content) in objects.map_err(|error| chain(&error))? {
            let (uid, source_uid) =
                if managed { (None, Some(&*stub.uid)) } else { (Some(stub.uid.to_string()), None) };
            embedded.restore(&key, uid, source_uid, content).map_err(|error| error.to_string())?;
        }
        Ok(embedded)
    }
}
