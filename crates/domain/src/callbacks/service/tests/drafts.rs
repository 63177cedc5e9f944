//! Reviews of templates that were changed since their submission.

use super::*;

#[tokio::test]
async fn review_of_draft_is_deferred_then_ignored() {
    for (attempts, deferred) in [(0, 1), (1, 1), (2, 0)] {
        let mut store = MockCallbackStore::new();
        store.expect_defer().times(deferred).returning(|_, _| Ok(()));
        store.expect_delete().times(1 - deferred).returning(|_| Ok(()));
        let mut templates = MockTemplateStore::new();
        templates.expect_find_by_meta_id().returning(|_, _| {
            Ok(Some(Template {
                meta_status: MetaStatus::Draft,
                ..approved_template("Oi", &[])
            }))
        });
        let callback = template_callback(attempts, review(MetaStatus::Approved));
        let callbacks = callbacks(store, MockStatusUpdateStore::new(), templates);
        callbacks.process(&callback).await.unwrap();
    }
}
