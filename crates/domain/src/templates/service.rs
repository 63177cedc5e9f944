//! The use cases of templates.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde_json::json;

use super::findings::{FindingCode, Findings};
use super::sync::reconcile;
use super::validate::Checked;
use super::warnings::warnings;
use super::{
    Submission, SyncReport, SyncedTemplate, Template, TemplateCheck, TemplateCommand, TemplateError, TemplateFilter,
    TemplateInput, TemplateKey, TemplateStore, TemplateType, submission_rules, transition, validate,
};
use crate::media::{Media, MediaFile};
use crate::messaging::{
    Category, HeaderType, MetaStatus, ParameterFormat, RemoteTemplate, SubmittedTemplate, TemplateSubmission,
    WhatsappCredentials, WhatsappGateway,
};
use crate::shared::{
    AuditAction, Cipher, Clock, CursorPage, CursorQuery, Event, FieldErrors, Ids, NotificationDraft, NotificationKind,
    Page, PageQuery, ProfileId, TemplateId, Tenant, WriteOutcome, retry_on_conflict,
};
use crate::whatsapp::ProfileStore;

/// The most pages of WhatsApp's list that one synchronization reads.
const SYNC_PAGES: usize = 100;

/// Creates, changes, deletes, submits and synchronizes templates.
pub struct Templates {
    store: Arc<dyn TemplateStore>,
    profiles: Arc<dyn ProfileStore>,
    gateway: Arc<dyn WhatsappGateway>,
    media: Media,
    cipher: Arc<dyn Cipher>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn Ids>,
}

/// A submission with its errors and the files that it uploads, in the order of [`TemplateSubmission::files`].
struct CheckedSubmission {
    errors: Findings,
    submission: TemplateSubmission,
    files: Vec<MediaFile>,
}

impl Templates {
    pub fn new(
        store: Arc<dyn TemplateStore>,
        profiles: Arc<dyn ProfileStore>,
        gateway: Arc<dyn WhatsappGateway>,
        media: Media,
        cipher: Arc<dyn Cipher>,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn Ids>,
    ) -> Self {
        Self {
            store,
            profiles,
            gateway,
            media,
            cipher,
            clock,
            ids,
        }
    }

    /// A numbered page.
    pub async fn page(
        &self,
        tenant: &Tenant,
        filter: &TemplateFilter,
        page: PageQuery,
    ) -> Result<Page<Template>, TemplateError> {
        Ok(self.store.page(tenant.account_id, filter, page).await?)
    }

    /// The page after a cursor.
    pub async fn cursor_page(
        &self,
        tenant: &Tenant,
        filter: &TemplateFilter,
        query: &CursorQuery<String>,
    ) -> Result<CursorPage<Template>, TemplateError> {
        Ok(self.store.cursor_page(tenant.account_id, filter, query).await?)
    }

    pub async fn get(&self, tenant: &Tenant, id: TemplateId) -> Result<Template, TemplateError> {
        self.store
            .find(tenant.account_id, id)
            .await?
            .ok_or(TemplateError::NotFound)
    }

    /// Creates a draft.
    pub async fn create(&self, tenant: &Tenant, input: TemplateInput) -> Result<Template, TemplateError> {
        let mut errors = FieldErrors::default();
        for (field, missing) in [
            ("category", input.category.is_none()),
            ("template_type", input.template_type.is_none()),
        ] {
            if missing {
                errors.add(field, "is required");
            }
        }
        let merged = validate::merge(self.new_draft(tenant), input, &Checked::All);
        if let Err(FieldErrors(more)) = &merged {
            errors.0.extend(more.clone());
        }
        errors.into_result()?;
        let template = merged?;
        self.store.insert(&template).await?;
        Ok(template)
    }

    /// Changes the given fields. Changed content makes the template a draft. With another name or language it is
    /// another template at WhatsApp.
    pub async fn update(
        &self,
        tenant: &Tenant,
        id: TemplateId,
        input: TemplateInput,
    ) -> Result<Template, TemplateError> {
        // Validation comes first, so an invalid input gets the same error whether or not the template exists.
        let placeholder = Template {
            name: "a".to_owned(),
            language: "pt".to_owned(),
            ..self.new_draft(tenant)
        };
        validate::check_alone(placeholder, input.clone())?;
        retry_on_conflict(async || {
            let stored = self.get(tenant, id).await?;
            let changed = self.changed(&stored, input.clone())?;
            let written = self.store.update(&changed, &stored, &[]).await?;
            Ok(written.or_missing(TemplateError::NotFound)?.map(|()| changed))
        })
        .await
    }

    fn changed(&self, stored: &Template, input: TemplateInput) -> Result<Template, TemplateError> {
        let checked = Checked::from_input(&input);
        let mut changed = validate::merge(stored.clone(), input, &checked)?;
        if (Template {
            folder_id: stored.folder_id,
            ..changed.clone()
        }) != *stored
        {
            changed.meta_status = command(stored.meta_status, TemplateCommand::Edit)?;
            changed.rejection_reason = None;
            changed.rejection_recommendation = None;
            // WhatsApp's view of the category concerned the previous content.
            changed.category_change = None;
            changed.correct_category = None;
            // A submission replaces WhatsApp's content by these fields.
            changed.unsupported = vec![];
        }
        if changed.name != stored.name || changed.language != stored.language {
            changed.meta_template_id = None;
        }
        changed.updated_at = self.clock.now();
        Ok(changed)
    }

    pub async fn delete(&self, tenant: &Tenant, id: TemplateId) -> Result<(), TemplateError> {
        let audit = Event::Audit(tenant.audit(AuditAction::Delete, "message_template", id));
        self.store
            .delete(tenant.account_id, id, self.clock.now(), &[audit])
            .await?
            .or_missing(TemplateError::NotFound)
    }

    /// Submits a template to WhatsApp through the given number, or through the account's default number.
    pub async fn submit(
        &self,
        tenant: &Tenant,
        id: TemplateId,
        profile: Option<ProfileId>,
    ) -> Result<Submission, TemplateError> {
        let template = self.get(tenant, id).await?;
        let meta_status = command(template.meta_status, TemplateCommand::Submit)?;
        let CheckedSubmission {
            errors,
            mut submission,
            files,
        } = self.checked_submission(&template).await?;
        errors.into_result()?;
        let (profile_id, credentials) = self.credentials(tenant, profile).await?;
        self.upload_files(&credentials, &mut submission, &files).await?;
        let meta_template_id = template
            .meta_template_id
            .as_deref()
            .filter(|_| template.profile_id == Some(profile_id));
        let response = self
            .gateway
            .submit_template(&credentials, &submission, meta_template_id)
            .await;
        let SubmittedTemplate {
            meta_template_id,
            status,
            category,
        } = response.map_err(TemplateError::Gateway)?;
        let submitted = Template {
            meta_status,
            profile_id: Some(profile_id),
            meta_template_id: Some(meta_template_id.clone()),
            rejection_reason: None,
            rejection_recommendation: None,
            updated_at: self.clock.now(),
            ..template.clone()
        };
        let event = Event::Notification(submitted_notification(&submitted));
        match self.store.update(&submitted, &template, &[event]).await? {
            WriteOutcome::Done => {}
            WriteOutcome::Missing => return Err(TemplateError::NotFound),
            WriteOutcome::Stale(_) => return Err(self.store_meta_id(tenant, &submitted).await),
        }
        Ok(Submission {
            meta_template_id,
            status,
            category,
        })
    }

    /// Checks the template as a submission would, without asking WhatsApp.
    pub async fn check(&self, tenant: &Tenant, id: TemplateId) -> Result<TemplateCheck, TemplateError> {
        let template = self.get(tenant, id).await?;
        let errors = self.checked_submission(&template).await?.errors.into_vec();
        Ok(TemplateCheck {
            passes: errors.is_empty(),
            errors,
            warnings: warnings(&template).into_vec(),
        })
    }

    /// Checks WhatsApp's rules and the files of a template. Only the account's own uploads are accepted.
    async fn checked_submission(&self, template: &Template) -> Result<CheckedSubmission, TemplateError> {
        let mut errors = submission_rules::check(template);
        let mut submission = TemplateSubmission::of(template);
        let mut files = Vec::new();
        for file_field in submission.files() {
            match self.media.own(template.account_id, file_field.handle).await? {
                Some(file) if file_field.format.accepts(file.path.kind) => files.push(file),
                Some(file) => {
                    let message = format!(
                        "is a file of type {}, which WhatsApp does not accept as {}",
                        file.path.kind, file_field.format
                    );
                    errors.add(file_field.field, FindingCode::Media, message);
                }
                // The rules report a missing file.
                None if file_field.handle.is_empty() => {}
                None => {
                    let message = "must be the URL of a file that was uploaded to this account";
                    errors.add(file_field.field, FindingCode::Media, message);
                }
            }
        }
        Ok(CheckedSubmission {
            errors,
            submission,
            files,
        })
    }

    /// Uploads the files of a submission to WhatsApp.
    async fn upload_files(
        &self,
        credentials: &WhatsappCredentials,
        submission: &mut TemplateSubmission,
        files: &[MediaFile],
    ) -> Result<(), TemplateError> {
        let mut handles = Vec::with_capacity(files.len());
        for file in files {
            let handle = self.gateway.upload_header(credentials, file).await;
            handles.push(handle.map_err(TemplateError::Gateway)?);
        }
        for (file_field, handle) in submission.files().into_iter().zip(handles) {
            *file_field.handle = handle;
        }
        Ok(())
    }

    /// Synchronizes the templates with WhatsApp's list for a number. Everything is read before anything is written.
    pub async fn sync(&self, tenant: &Tenant, profile: Option<ProfileId>) -> Result<SyncReport, TemplateError> {
        let (profile_id, credentials) = self.credentials(tenant, profile).await?;
        // Keyed by name and language, so that a template that is listed twice is written once.
        let mut synced = BTreeMap::new();
        let mut after = None;
        for _ in 0..SYNC_PAGES {
            let page = self.gateway.list_templates(&credentials, after.as_deref()).await;
            let page = page.map_err(TemplateError::Gateway)?;
            synced.extend(self.reconciled(tenant, profile_id, &page.templates).await?);
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        let total = synced.len();
        let changes: Vec<_> = synced.into_values().flatten().collect();
        let written = self.store.sync(tenant.account_id, &changes).await?;
        Ok(SyncReport {
            unchanged: total.saturating_sub(written.created).saturating_sub(written.updated),
            ..written
        })
    }

    /// The changes that follow from one page of WhatsApp's list. Only the templates that the page names are read.
    async fn reconciled(
        &self,
        tenant: &Tenant,
        profile: ProfileId,
        remote: &[RemoteTemplate],
    ) -> Result<Vec<(TemplateKey, Option<SyncedTemplate>)>, TemplateError> {
        let keys: Vec<TemplateKey> = remote.iter().map(TemplateKey::from).collect();
        let templates = self.store.named(tenant.account_id, &keys).await?;
        let local_by_key: HashMap<TemplateKey, Template> = templates
            .into_iter()
            .map(|template| (TemplateKey::from(&template), template))
            .collect();
        let is_own_file = |url: &str| self.media.publishes(url);
        let changes = keys.into_iter().zip(remote).map(|(key, remote)| {
            let local = local_by_key.get(&key);
            let change = reconcile(local, remote, profile, self.new_draft(tenant), &is_own_file);
            (key, change)
        });
        Ok(changes.collect())
    }

    async fn credentials(
        &self,
        tenant: &Tenant,
        profile: Option<ProfileId>,
    ) -> Result<(ProfileId, WhatsappCredentials), TemplateError> {
        let stored = match profile {
            Some(id) => self.profiles.find(tenant.account_id, id).await?,
            None => self.profiles.default_profile(tenant.account_id).await?,
        };
        let message = if profile.is_some() {
            "does not exist"
        } else {
            "is missing, and no WhatsApp number is connected"
        };
        let stored = stored.ok_or_else(|| FieldErrors::one("profile_id", message))?;
        if !stored.is_verified() {
            let message = "is not verified; read its checks, correct what they name, and verify it again";
            return Err(FieldErrors::one("profile_id", message).into());
        }
        let credentials = stored.credentials(tenant.account_id, self.cipher.as_ref());
        let credentials = credentials.ok_or_else(|| {
            FieldErrors::one(
                "profile_id",
                "cannot be used: its access token cannot be decrypted; set it again",
            )
        })?;
        Ok((stored.profile.id, credentials))
    }

    /// The template was changed while its earlier content was submitted. The change stays. WhatsApp's id of the
    /// template is stored, so that the next submission edits the same template.
    async fn store_meta_id(&self, tenant: &Tenant, submitted: &Template) -> TemplateError {
        let stored = retry_on_conflict(async || {
            let fresh = self.get(tenant, submitted.id).await?;
            if fresh.name != submitted.name || fresh.language != submitted.language {
                return Ok(Some(()));
            }
            let with_meta_id = Template {
                profile_id: submitted.profile_id,
                meta_template_id: submitted.meta_template_id.clone(),
                ..fresh.clone()
            };
            let written = self.store.update(&with_meta_id, &fresh, &[]).await?;
            written.or_missing(TemplateError::NotFound)
        });
        stored.await.err().unwrap_or(TemplateError::ChangedDuringSubmission)
    }

    fn new_draft(&self, tenant: &Tenant) -> Template {
        let now = self.clock.now();
        Template {
            id: self.ids.next().into(),
            account_id: tenant.account_id,
            name: String::new(),
            category: Category::Utility,
            category_change: None,
            correct_category: None,
            language: String::new(),
            template_type: TemplateType::Standard,
            parameter_format: ParameterFormat::Positional,
            header_type: HeaderType::None,
            header_text: None,
            header_media_url: None,
            body_text: None,
            footer_text: None,
            buttons: vec![],
            limited_time_offer: None,
            message_send_ttl_seconds: None,
            variables: vec![],
            carousel_cards: vec![],
            folder_id: None,
            profile_id: None,
            meta_template_id: None,
            meta_status: MetaStatus::Draft,
            rejection_reason: None,
            rejection_recommendation: None,
            quality_score: None,
            unsupported: vec![],
            created_at: now,
            updated_at: now,
            version: 1,
        }
    }
}

fn command(status: MetaStatus, command: TemplateCommand) -> Result<MetaStatus, FieldErrors> {
    transition(status, command).map_err(|message| FieldErrors::one("meta_status", message))
}

fn submitted_notification(template: &Template) -> NotificationDraft {
    NotificationDraft {
        kind: NotificationKind::Info,
        title: format!("Template submitted: {}", template.name),
        message: "WhatsApp reviews the template.".to_owned(),
        data: json!({ "template_id": template.id, "meta_template_id": template.meta_template_id }),
    }
}
