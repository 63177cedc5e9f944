//! OpenAPI documentation of folders.

use recado_domain::folders::Folder;
use recado_domain::shared::CursorPage;

use super::OpenApiTag;
use super::operation::{Body, Operation, created, cursor_page, data, no_content, path_id};
use crate::routes::folders::{KIND, NewFolder};

pub(crate) const TAG: OpenApiTag = OpenApiTag {
    name: "Folders",
    description: "Folders for campaigns and for templates.",
};

pub(crate) fn list() -> Operation {
    Operation::new("List folders", "Returns folders, newest first.")
        .takes(&KIND)
        .takes_all(cursor_page())
        .responds(data::<CursorPage<Folder>>("A page of folders and its `nextCursor`."))
}

pub(crate) fn create() -> Operation {
    Operation::new("Create a folder", "Creates a folder for campaigns or for templates.")
        .body(Body::json::<NewFolder>())
        .responds(created::<Folder>("The new folder."))
}

pub(crate) fn delete() -> Operation {
    Operation::new(
        "Delete a folder",
        "Deletes a folder. Its campaigns or templates stay and have no folder.",
    )
    .takes(path_id("The folder's id."))
    .responds(no_content("The folder is deleted."))
}
