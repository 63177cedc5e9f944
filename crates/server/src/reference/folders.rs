//! What the reference says of folders.

use recado_domain::folders::{Folder, FolderKind};
use recado_domain::shared::Slice;

use super::Tag;
use super::operation::{Body, Operation, created, data, gone, id_of, slice, word};
use crate::routes::folders::NewFolder;

pub(crate) const TAG: Tag = Tag {
    name: "Folders",
    description: "Folders of campaigns and of templates.",
};

pub(crate) fn list() -> Operation {
    Operation::new("List folders", "Folders, newest first.")
        .takes(word::<FolderKind>("kind", "Only folders of this kind."))
        .takes_all(slice())
        .answers(data::<Slice<Folder>>("Folders, and where the next ones begin."))
}

pub(crate) fn create() -> Operation {
    Operation::new("Create a folder", "Creates a folder for campaigns or for templates.")
        .body(Body::json::<NewFolder>())
        .answers(created::<Folder>("The new folder."))
}

pub(crate) fn delete() -> Operation {
    Operation::new(
        "Delete a folder",
        "Deletes a folder; what lies in it lies in no folder any more.",
    )
    .takes(id_of("The folder's id."))
    .answers(gone("The folder is deleted."))
}
