//! The stress suites: name, the property that they check, and the tests that they run.

use anyhow::Result;

use super::tools;
use crate::test::plans;

/// A property of the product, and how to check it.
pub(super) struct StressSuite {
    pub(super) name: &'static str,
    pub(super) property: &'static str,
    pub(super) kind: SuiteKind,
}

pub(super) enum SuiteKind {
    Tests {
        iterations: &'static Iterations,
        tests: &'static [Tests],
    },
    /// `cargo xtask fuzz`.
    FuzzTargets,
    Tool(fn() -> Result<()>),
}

/// The number of iterations, by default and for a release.
pub(super) struct Iterations {
    /// The unit that is counted.
    pub(super) unit: &'static str,
    pub(super) by_default: u64,
    pub(super) for_release: u64,
    /// Iterations of a batch of `--minutes`, about half a minute. 0: the suite has no seeds.
    pub(super) per_batch: u64,
    /// The tests iterate themselves. Otherwise the suite repeats them.
    pub(super) tests_iterate: bool,
}

/// Tests of a package: modules (`a::b::`) and single tests (`a::b::test`). Each module MUST have a test that passes, and
/// each test MUST pass.
pub(super) struct Tests {
    pub(super) package: &'static str,
    pub(super) target: &'static [&'static str],
    pub(super) names: &'static [&'static str],
    /// Includes ignored tests: those that take too long or need an idle machine.
    pub(super) includes_ignored: bool,
    /// The modules and tests among them that do not read the seed, such as those that must find planted bugs.
    pub(super) fixed_seeds: &'static [&'static str],
}

impl Tests {
    const fn with_fixed_seeds(self, names: &'static [&'static str]) -> Self {
        Self {
            fixed_seeds: names,
            ..self
        }
    }
}

const INTEGRATION_TESTS: &[&str] = &["--test", "it"];
const LIBRARY_TESTS: &[&str] = &["--lib"];

const fn iterations(unit: &'static str, by_default: u64, for_release: u64) -> Iterations {
    Iterations {
        unit,
        by_default,
        for_release,
        per_batch: by_default / 10,
        tests_iterate: true,
    }
}

/// Iterations of a test that measures time, which finds nothing beside other work.
const fn idle_iterations(unit: &'static str, by_default: u64, for_release: u64) -> Iterations {
    Iterations {
        per_batch: 0,
        ..iterations(unit, by_default, for_release)
    }
}

const fn repetitions(by_default: u64, for_release: u64) -> Iterations {
    Iterations {
        unit: "rounds",
        by_default,
        for_release,
        per_batch: 0,
        tests_iterate: false,
    }
}

const fn tests(package: &'static str, target: &'static [&'static str], names: &'static [&'static str]) -> Tests {
    Tests {
        package,
        target,
        names,
        includes_ignored: false,
        fixed_seeds: &[],
    }
}

const fn server_tests(names: &'static [&'static str]) -> Tests {
    tests("recado-server", INTEGRATION_TESTS, names)
}

const fn server_tests_with_ignored(names: &'static [&'static str]) -> Tests {
    Tests {
        includes_ignored: true,
        ..server_tests(names)
    }
}

const fn suite(
    name: &'static str,
    property: &'static str,
    iterations: &'static Iterations,
    tests: &'static [Tests],
) -> StressSuite {
    StressSuite {
        name,
        property,
        kind: SuiteKind::Tests { iterations, tests },
    }
}

const fn tool(name: &'static str, property: &'static str, tool: fn() -> Result<()>) -> StressSuite {
    StressSuite {
        name,
        property,
        kind: SuiteKind::Tool(tool),
    }
}

/// In the order of the list.
pub(super) const SUITES: &[StressSuite] = &[
    suite(
        "kills",
        "servers killed during a campaign: no recipient gets a message twice, none is lost",
        &iterations("campaigns", 20, 500),
        &[server_tests(&["faults::kills::"])],
    ),
    suite(
        "messages",
        "servers killed under campaigns and direct messages: nothing is called twice, nothing accepted is lost",
        &iterations("rounds of 4 kills", 20, 125),
        &[server_tests(&["faults::message_kills::"])],
    ),
    suite(
        "media",
        "server, file store and WhatsApp fail while files arrive: each is ready once, with the right bytes",
        &iterations("rounds of 4 kills", 20, 400),
        &[server_tests(&["faults::media_kills::"])],
    ),
    suite(
        "acknowledged",
        "acknowledged changes survive the death of server and database",
        &iterations("deaths", 20, 200),
        &[server_tests(&["faults::acknowledged::"])],
    ),
    suite(
        "quota",
        "no history of concurrent runs exceeds the month's quota or leaks a reservation",
        &iterations("histories", 200, 10_000),
        &[tests("recado-postgres", INTEGRATION_TESTS, &["quota_races::"])],
    ),
    suite(
        "isolation",
        "no route and no table returns or changes another account's rows",
        &repetitions(1, 1),
        &[
            server_tests(&[
                "matrix::",
                "tenants::",
                "references::",
                "assignment::",
                "membership_revocation::",
            ]),
            tests("recado-postgres", INTEGRATION_TESTS, &["isolation::", "pool::"]),
        ],
    ),
    suite(
        "bytes",
        "requests with random bytes and hostile bodies: no 5xx, no panic, no memory growth",
        &iterations("requests", 20_000, 1_000_000),
        &[server_tests(&["faults::fuzz::", "faults::bodies::"])],
    ),
    StressSuite {
        name: "inputs",
        property: "no input that libFuzzer finds, guided by coverage, breaks a property of a parser",
        kind: SuiteKind::FuzzTargets,
    },
    suite(
        "model",
        "stores and server behave as their models, and planted bugs are found",
        &iterations("histories", 200, 10_000),
        &[
            tests(
                "recado-postgres",
                INTEGRATION_TESTS,
                &[
                    "model::",
                    "billing_model::",
                    "file_model::",
                    "message_model::",
                    "webhook_model::",
                ],
            )
            .with_fixed_seeds(&[
                "model::unmodified_record_and_start_passes_the_model",
                "model::record_and_start_without_a_guard_is_found",
                "model::double_release_of_reservations_is_found",
                "model::falsified_writes_are_found",
                "billing_model::falsified_billing_writes_are_found",
                "billing_model::lost_mark_of_an_applied_event_is_found",
                "file_model::falsified_files_are_found",
                "file_model::bugs_of_the_in_memory_file_store_are_found",
                "message_model::falsified_messages_are_found",
                "message_model::falsified_queues_are_found",
                "message_model::falsified_inserts_of_messages_are_found",
                "message_model::repeated_references_are_found",
                "message_model::bugs_of_the_in_memory_store_are_found",
                "webhook_model::falsified_deliveries_are_found",
                "webhook_model::falsified_endpoints_are_found",
                "webhook_model::falsified_inserts_are_found",
                "webhook_model::ignored_conditions_are_found",
            ]),
            server_tests(&["model::"]).with_fixed_seeds(&["model::model_with_a_planted_bug_is_contradicted"]),
        ],
    ),
    suite(
        "histories",
        "concurrent calls to killed servers are linearizable, sends agree with WhatsApp, and planted bugs are found",
        &iterations("histories", 20, 500),
        &[server_tests(&["histories::"]).with_fixed_seeds(&["histories::planted_bugs::"])],
    ),
    suite(
        "simulation",
        "simulated servers with faults, dying and stalled workers keep the invariants, and planted bugs are found",
        &iterations("worlds", 2_000, 10_000),
        &[tests(
            "recado-domain",
            LIBRARY_TESTS,
            &["simulation::", "campaigns::dispatch::tests::simulation::"],
        )
        .with_fixed_seeds(&[
            "simulation::files::simulation_of_files_finds_every_planted_bug",
            "simulation::simulation_finds_every_planted_bug",
            "simulation::simulation_of_a_seed_repeats_itself",
            "simulation::simulation_of_regression_seeds_keeps_the_invariants",
        ])],
    ),
    suite(
        "recovery",
        "after the database or Redis returns, requests succeed within 2 s and campaigns continue within 5 s",
        &repetitions(1, 10),
        &[server_tests(&[
            "faults::outages::",
            "faults::disks::",
            "limiter::redis_outage_opens_the_limits_until_redis_recovers",
        ])],
    ),
    suite(
        "limiter",
        "a Redis that is dead, silent, slow, corrupt or full costs little and blocks no request",
        &repetitions(1, 10),
        &[
            tests(
                "recado-redis",
                INTEGRATION_TESTS,
                &["faults::", "hit_on_dead_redis_fails_fast"],
            ),
            server_tests(&["limiter::", "limits::"]),
        ],
    ),
    suite(
        "rollout",
        "servers are replaced and the schema grows under load, and no request fails",
        &iterations("replacements", 10, 50),
        &[server_tests(&[
            "faults::rollouts::",
            "faults::stops::",
            "faults::versions::",
        ])],
    ),
    suite(
        "egress",
        "no URL of a tenant reaches the internal network",
        &repetitions(1, 1),
        &[
            tests("recado-domain", LIBRARY_TESTS, &["egress::"]),
            tests(
                "recado-gateways",
                INTEGRATION_TESTS,
                &["egress::", "pages::", "webhooks::"],
            ),
            server_tests(&["brand::"]),
        ],
    ),
    suite(
        "secrets",
        "no secret appears in logs, tables, Redis or responses",
        &repetitions(1, 1),
        &[server_tests(&[
            "faults::secrets::",
            "billing_cards::card_data_appears_in_no_response_table_or_log",
            "api_keys::full_api_key_appears_only_in_creation_response",
            "process::log_has_one_line_per_request_and_holds_no_secrets",
        ])],
    ),
    suite(
        "clocks",
        "servers with clocks an hour off decide alike",
        &repetitions(1, 5),
        &[server_tests(&["faults::clocks::"])],
    ),
    suite(
        "disconnects",
        "clients that disconnect at any point leave no partial change and receive no foreign data",
        &iterations("clients", 2_000, 20_000),
        &[
            server_tests(&["disconnects::"]),
            tests(
                "recado-postgres",
                INTEGRATION_TESTS,
                &["pool::requests_cancelled_anywhere_leave_nothing_behind"],
            ),
        ],
    ),
    suite(
        "connections",
        "slow, unresponsive and malformed clients do not delay other clients",
        &repetitions(1, 5),
        &[server_tests(&["faults::connections::"])],
    ),
    suite(
        "timing",
        "the time of a refusal reveals nothing about the gateway's token",
        &idle_iterations("requests of each kind", 20_000, 100_000),
        &[server_tests_with_ignored(&["faults::timing::"])],
    ),
    tool(
        "versions",
        "no version of PostgreSQL reads all rows of an account to find a few",
        plans::check_all_versions,
    ),
    tool(
        "supply",
        "dependencies are at or above the versions that fix known vulnerabilities, and no advisory concerns them",
        tools::supply,
    ),
];

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use recado_testkit::paths;

    use super::*;

    /// The file of a module of a test target.
    fn module_file(tests: &Tests, module: &str) -> Option<PathBuf> {
        let package = paths::root()
            .join("crates")
            .join(tests.package.strip_prefix("recado-")?);
        let (root, main) = match tests.target {
            LIBRARY_TESTS => (package.join("src"), "lib.rs"),
            _ => (package.join("tests/it"), "main.rs"),
        };
        let path = root.join(module.replace("::", "/"));
        let files = match module.is_empty() {
            true => vec![root.join(main)],
            false => vec![path.with_extension("rs"), path.join("mod.rs")],
        };
        files.into_iter().find(|file| file.is_file())
    }

    fn exists(tests: &Tests, name: &str) -> bool {
        let (module, test) = name.rsplit_once("::").unwrap_or(("", name));
        module_file(tests, module).is_some_and(|file| {
            let text = fs::read_to_string(file).unwrap();
            test.is_empty() || text.contains(&format!("fn {test}("))
        })
    }

    #[test]
    fn every_listed_module_and_test_exists() {
        for suite in SUITES {
            let SuiteKind::Tests { tests, .. } = suite.kind else {
                continue;
            };
            for selection in tests {
                for name in selection.names.iter().chain(selection.fixed_seeds) {
                    assert!(
                        exists(selection, name),
                        "{}: {} has no {name}",
                        suite.name,
                        selection.package
                    );
                }
                assert!(!exists(selection, "no_module::"));
                assert!(!exists(selection, &format!("{}no_test", selection.names[0])));
            }
        }
    }
}
