//! Tests of running areas: time limits, and areas that depend on invalid variables.

use super::diagnosis::DiagnosisState;
use super::*;

async fn hang(_: &DoctorContext) -> AreaOutcome {
    std::future::pending().await
}

async fn pass(_: &DoctorContext) -> AreaOutcome {
    Ok(vec![Diagnosis::ok("pass", "fine")])
}

async fn depend(context: &DoctorContext) -> AreaOutcome {
    context.owner()?;
    pass(context).await
}

/// Without any variable.
fn unconfigured() -> DoctorContext {
    DoctorContext::new(&DoctorOptions::default(), &|_| None)
}

#[tokio::test(start_paused = true)]
async fn area_that_hangs_fails_and_hides_no_other() {
    let areas = [
        area("hang", |context| Box::pin(hang(context))),
        area("pass", |context| Box::pin(pass(context))),
    ];
    let checks = check_areas(&areas, &unconfigured()).await;
    let states: Vec<_> = checks.iter().map(|check| (check.name, check.state)).collect();
    assert_eq!(states, [("hang", DiagnosisState::Fail), ("pass", DiagnosisState::Ok)]);
    assert_eq!(checks[0].found, "no result within 10s");
}

#[tokio::test]
async fn area_with_an_invalid_variable_is_not_checked() {
    let areas = [area("depend", |context| Box::pin(depend(context)))];
    let checks = check_areas(&areas, &unconfigured()).await;
    assert_eq!(checks[0].state, DiagnosisState::Warn);
    assert_eq!(checks[0].found, "not checked, because DATABASE_URL is not valid");
}

#[tokio::test]
async fn unconfigured_installation_fails_by_its_variables_alone() {
    let checks = check_areas(AREAS, &unconfigured()).await;
    let failed: Vec<_> = checks
        .iter()
        .filter(|check| check.state == DiagnosisState::Fail)
        .map(|check| (check.name, check.found.split(' ').next().unwrap_or_default()))
        .collect();
    assert_eq!(
        failed,
        [
            ("configuration", "DATABASE_URL"),
            ("configuration", "APP_SECRET"),
            ("configuration", "SESSION_JWT_SECRET"),
        ]
    );
    assert!(
        checks
            .iter()
            .all(|check| check.state == DiagnosisState::Ok || check.remedy.is_some())
    );
}

#[test]
fn area_names_are_words_and_unique() {
    let mut names: Vec<&str> = AREAS.iter().map(|area| area.name).collect();
    assert!(
        names
            .iter()
            .all(|name| name.bytes().all(|c| c.is_ascii_lowercase() || c == b'_'))
    );
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
}
