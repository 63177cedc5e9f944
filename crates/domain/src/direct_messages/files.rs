//! The files of a template message.

use std::collections::HashMap;

use thiserror::Error;

use crate::messaging::{FileSource, WhatsappCredentials, WhatsappGateway};
use crate::shared::{AccountId, MediaId};
use crate::templates::Template;
use crate::whatsapp::{ContentFile, ContentFileError, ContentFiles, MessageFileError, MessageFiles};

/// Why a template message cannot have its files.
#[derive(Debug, Error)]
pub(crate) enum TemplateFileError {
    /// The account's file of the header cannot be used.
    #[error(transparent)]
    Header(#[from] ContentFileError),
    #[error(transparent)]
    Message(#[from] MessageFileError),
}

/// Uploads the files of template messages to WhatsApp if needed.
pub(crate) struct TemplateFiles<'a> {
    pub(crate) files: &'a MessageFiles,
    pub(crate) content_files: &'a ContentFiles,
    pub(crate) gateway: &'a dyn WhatsappGateway,
}

impl TemplateFiles<'_> {
    /// The source of each of [`Template::file_urls`]. The id of `header_media` is one of them.
    pub(crate) async fn sources(
        &self,
        account: AccountId,
        credentials: &WhatsappCredentials,
        template: &Template,
        header_media: Option<MediaId>,
    ) -> Result<HashMap<String, FileSource>, TemplateFileError> {
        let mut sources = HashMap::new();
        for url in template.file_urls() {
            let source = match header_media.filter(|id| id.to_string() == url) {
                Some(id) => self.header(account, credentials, template, id).await?,
                None => Some(self.files.source(self.gateway, account, credentials, &url).await?),
            };
            sources.extend(source.map(|source| (url, source)));
        }
        Ok(sources)
    }

    async fn header(
        &self,
        account: AccountId,
        credentials: &WhatsappCredentials,
        template: &Template,
        id: MediaId,
    ) -> Result<Option<FileSource>, TemplateFileError> {
        let file = self
            .content_files
            .find_header(account, id, template.header_type)
            .await?;
        let file = ContentFile::Stored(file);
        let source = self.content_files.source(self.gateway, account, credentials, &file);
        Ok(source.await?)
    }
}
