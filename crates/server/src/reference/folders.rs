//! What the reference says of folders.

use recado_domain::folders::{Folder, FolderKind};
use recado_domain::shared::CursorPage;

use super::OpenApiTag;
use super::operation::{Body, Operation, created, cursor_page, data, id_of, no_content, string_enum};
use crate::routes::folders::NewFolder;

pub(crate) const TAG: OpenApiTag = OpenApiTag {
    name: "Folders",
    description: "Folders of campaigns and of templates.",
};

pub(crate) fn list() -> Operation {
    Operation::new("List folders", "Folders, newest first.")
        .takes(string_enum::<FolderKind>("kind", "Only folders of this kind."))
        .takes_all(cursor_page())
        .answers(data::<CursorPage<Folder>>("Folders, and where the next ones begin."))
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
    .answers(no_content("The folder is deleted."))
}
