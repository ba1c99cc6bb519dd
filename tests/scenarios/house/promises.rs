//! Each promise about security in the documentation names the tests that hold it.

use std::{collections::BTreeSet, fs};

use super::tree;

/// First words of a promise, and the tests that fail if it is broken, as
/// `end/of/the/path::function`: those of whole programs first.
type Promise = (&'static str, &'static [&'static str]);

const PAGES: [(&str, &[Promise]); 2] = [("docs/threat-model.md", THREATS), ("docs/network.md", NETWORK)];

/// Sections in which each list item, or each row of a table, is a promise.
const COMPLETE: [(&str, &str); 3] = [
    ("## What stops them", "- "),
    ("## Join tokens", "- "),
    ("## What a relay can do", "| "),
];

#[rustfmt::skip]
const THREATS: &[Promise] = &[
    ("It cannot serve in the agent's place", &["enrolment_agent/port::tier2_systemd_holds_the_port_before_and_without_the_agent",
        "packaging_units::the_port_is_held_before_any_service_starts_and_starts_none"]),
    ("It cannot read the agent's key", &["enrolment_agent/port::tier2_systemd_holds_the_port_before_and_without_the_agent"]),
    ("It cannot ask the agent anything", &["enrolment_agent::an_impostor_gets_no_answer",
        "runtime/server::only_verified_clients_except_agents_are_authorized"]),
    ("It cannot enrol in the agent's place", &[
        "push/own_address::a_uuid_that_follows_from_the_name_enrols_no_agent_that_connects_itself",
        "enrolment/tests/table::an_address_that_others_can_use_needs_what_only_root_reads"]),
    ("It cannot read the join token", &["push_agent/machine::tier2_the_agent_connects_within_its_sandbox",
        "push_agent::a_token_is_shown_to_collectors_only_and_appears_nowhere_else"]),
    ("It cannot make root's part do anything but run again", &["host/src/requests::names_are_taken_and_links_are_not_followed",
        "provision/src/tests::only_a_reconcile_run_takes_the_requests", "packaging_units::root_leaves_requests_only_as_links"]),
    ("It cannot keep an agent out", &["push/bounds::connections_that_a_process_holds_do_not_keep_the_agent_of_the_same_vm_out"]),
    ("**Another VM's identity**", &["enrolment/attacks::an_impostor_with_a_second_key_is_refused",
        "enrolment/tests/properties::an_incarnation_never_gets_two_keys"]),
    ("**Another VM's agent**", &["enrolment/attacks::a_forwarded_port_takes_nothing_from_the_agent_behind_it",
        "enrolment_agent::a_later_incarnation_replaces_the_key_and_another_vm_does_not"]),
    ("**Another tenant's data**", &["scenarios/access::credentials_of_each_kind_are_checked",
        "enrolment_agent::an_impostor_gets_no_answer"]),
    ("**Another tenant's Nodes**", &[
        "cluster_wrong_kubeconfig::two_user_clusters_with_one_kubeconfig_are_refused_until_it_is_mended_tier3",
        "cluster_wrong_kubeconfig::swapped_kubeconfigs_write_nothing_where_uuids_follow_from_names_tier3",
        "cluster_node_conditions::no_tenant_can_redirect_conditions_to_another_node_tier3"]),
    ("**Placement and labels**", &["fleet::a_moved_vm_is_seen_on_its_new_host_within_two_seconds",
        "index/identity_tests::guest_reports_confirm_or_are_findings"]),
    ("**The collector's time and memory**", &["fleet::each_agent_that_misbehaves_is_named_with_its_reason_and_disturbs_no_other",
        "scrape/concurrency::a_tenant_with_hanging_pulls_does_not_delay_others"]),
    ("**Prometheus**", &["prometheus::tier3_prometheus_stores_nothing_that_a_guest_forges",
        "scrape/filter::reserved_families_and_timestamps_are_removed"]),
    ("**Its neighbours behind a relay**", &["push/bounds::a_vm_behind_a_relay_that_connects_at_full_speed_leaves_room_for_others",
        "scenarios/relay::the_way_to_the_collector_is_a_plain_forward_with_limits"]),
    ("**The collector's network**", &["enrolment/attacks::a_poisoned_guest_agent_address_is_never_dialled",
        "core/src/dial::only_addresses_of_the_launcher_pod_are_chosen", "core/src/dial::allowed_addresses"]),
    ("**A receiver of metrics**", &["mla_worker::tier2_no_tenant_lets_the_collector_dial_special_addresses",
        "dial_guard::a_name_is_checked_by_its_addresses", "remote_write/transport::a_redirect_is_not_followed",
        "remote_write/transport::a_silent_endless_or_mad_receiver_costs_a_bounded_time"]),
    ("**A copied disk, image or snapshot**", &["guest_enrolment::tier4_a_clone_discards_the_key_and_enrols_as_itself",
        "enrolment_agent::a_cloned_disk_is_noticed",
        "enrolment/attacks::a_copied_certificate_is_refused_and_the_original_keeps_its_key"]),
    ("On a cluster every request is decided", &["cluster_access::a_token_reads_what_rbac_grants_tier3",
        "scenarios/access::a_token_reads_its_own_tenant_in_every_path"]),
    ("With `redactInfra`", &["scenarios/access::a_token_reads_its_own_tenant_in_every_path",
        "api/tenant_tests::no_answer_for_a_tenant_contains_anything_of_another"]),
    ("The requests of each caller are limited", &["access/tests::a_flood_of_requests_is_limited_and_causes_no_reviews",
        "api/watch_tests::a_tenant_with_many_long_polls_refuses_only_its_own",
        "api/watch_slots::a_tenant_gets_no_second_share_with_another_service_account"]),
    ("A request for another tenant's VM by name", &[
        "access/tenant_view::nothing_is_made_of_a_hidden_vm_as_of_one_that_does_not_exist"]),
    ("A collector without authentication listens on loopback", &["api/foreign_page::open_access_is_for_loopback_names",
        "api/foreign_page::open_access_is_not_for_pages_of_other_origins", "src/config/tests::each_problem_of_access_has_its_key"]),
    ("With authentication, no request that changes something", &[
        "api/foreign_page::with_authentication_any_host_is_served_and_no_change_from_another_site"]),
    ("The collector's own page runs no script but its own", &["api/web_files_tests::every_answer_has_the_headers_for_browsers",
        "api/web_files_tests::the_sources_make_no_elements_of_texts_and_name_no_host"]),
    ("TLS 1.3 with certificates on both sides", &["scenarios/relay::a_relay_that_lies_only_makes_its_own_vms_silent",
        "enrolment_agent::an_impostor_gets_no_answer", "enrolment_agent::a_client_of_tls_1_2_is_refused",
        "scenarios/access::a_client_of_tls_1_2_is_refused"]),
    ("An agent that connects to the collector is the server of TLS", &["push/attacks::a_certificate_reports_as_its_own_vm_only",
        "push/attacks::a_port_that_is_joined_to_the_collectors_is_no_agent_that_connects",
        "push/attacks::a_way_that_works_is_kept_and_the_other_one_is_tried_at_once"]),
    ("A join token names a user cluster", &["push/tokens::a_stolen_token_is_worthless_from_another_address",
        "push/tokens::expired_revoked_and_made_up_tokens_are_refused", "push/tokens::a_token_of_one_cluster_enrols_no_vm_of_another"]),
    ("A node proof is public", &["push/node_proofs::a_proof_by_anybody_else_enrols_nobody",
        "tls/node_proof::a_proof_fits_one_key_one_certificate_and_one_authority"]),
    ("A recorded enrolment cannot be replayed", &["enrolment/attacks::a_replayed_csr_is_refused",
        "enrolment/attacks::a_csr_for_another_key_than_that_of_the_connection_is_refused"]),
    ("An agent that connects to the collector reveals its certificate", &[
        "push_agent::an_impostor_that_the_agent_connects_to_gets_nothing"]),
    ("The [Gardener webhook](gardener.md) has no account", &[
        "packaging_pods::the_webhook_for_gardener_has_no_account_and_connects_to_nothing"]),
    ("User-data holds the public authority only", &["delivery/examples::no_example_has_a_secret"]),
    ("Agents' certificates live 24 hours", &["enrolment/certificates::a_certificate_of_an_old_incarnation_is_not_used",
        "push/attacks::a_certificate_of_a_deleted_vm_is_refused", "src/config/tests::enrolment_pulls_agents_without_files"]),
    ("An admin revokes one at once", &["enrolment/lifecycle::a_revoked_vm_is_cut_off_and_comes_back_after_a_reset",
        "push/attacks::a_revoked_vm_is_cut_off_while_it_is_connected"]),
    ("A static token is not valid any more", &["scenarios/access::credentials_of_each_kind_are_checked"]),
];

#[rustfmt::skip]
const NETWORK: &[Promise] = &[
    ("`maxConnections` |", &["collector/src/slots::a_peer_and_all_peers_have_a_maximum"]),
    ("`maxUnverified` |", &["push/bounds::many_addresses_that_fill_the_table_do_not_keep_honest_agents_out",
        "ingest/admission::a_full_table_closes_the_oldest_of_the_busiest_address"]),
    ("`maxUnverifiedPerPeer` |", &["push/bounds::connections_that_a_process_holds_do_not_keep_the_agent_of_the_same_vm_out",
        "push/bounds::one_address_has_few_connections_and_honest_agents_are_joined"]),
    ("`handshakeTimeout` |", &["push/bounds::a_peer_that_never_handshakes_or_is_slow_is_closed"]),
    ("`maxAge` |", &["scenarios/push::an_old_connection_is_closed_and_the_next_one_verified_without_a_failed_pull",
        "push/attacks::connections_end_with_the_authority_that_vouched_for_them",
        "push/attacks::a_revoked_vm_is_cut_off_while_it_is_connected",
        "scrape/job_tests::a_connection_ends_when_the_certificate_of_its_agent_expires"]),
    ("**Which VM it is**", &["push/attacks::a_certificate_reports_as_its_own_vm_only"]),
    ("**Without a certificate**", &["scenarios/push::a_vm_that_cannot_be_dialled_enrols_and_is_joined_by_push",
        "push/attacks::an_agent_without_certificate_at_a_foreign_address_is_not_enrolled"]),
    ("**One connection for each VM.**", &["scenarios/push::a_second_connection_replaces_the_first",
        "scenarios/push::a_vm_that_can_be_dialled_again_is_dialled",
        "push/attacks::a_way_that_works_is_kept_and_the_other_one_is_tried_at_once"]),
    ("An address of a VM may connect four times a second", &[
        "push/bounds::a_vm_that_connects_at_full_speed_is_slowed_down_and_others_are_joined",
        "core/src/connect_rate::a_relay_may_bring_back_the_whole_fleet_within_half_a_minute"]),
    ("`wrong_vm` |", &["push/attacks::a_certificate_of_an_old_incarnation_is_refused",
        "scrape/accept::a_certificate_names_a_vm_of_this_fleet",
        "enrolment/certificates::a_certificate_for_another_key_than_the_recorded_one_is_not_used"]),
    ("`address_shared` |", &["push/attacks::an_address_of_two_vms_enrols_neither"]),
    ("The token is the content of", &["push/real::the_real_agent_connects_and_enrols_with_a_join_token",
        "push/tokens::vms_behind_a_nat_enrol_with_the_token_of_their_cluster"]),
    ("`--from` names the networks", &["push/tokens::a_stolen_token_is_worthless_from_another_address",
        "push/own_address::a_join_token_enrols_it_at_its_own_address"]),
    ("The VM is the one of the token's user cluster", &["push/tokens::evidence_that_fits_no_vm_or_two_is_refused",
        "push/tokens::the_first_key_wins_and_other_evidence_must_fit"]),
    ("Whoever has a token and connects from its networks", &["push/tokens::the_first_key_wins_and_other_evidence_must_fit"]),
    ("A refused token belongs to no VM", &["push/tokens::a_stolen_token_is_worthless_from_another_address",
        "join_token/refusals::refusals_are_counted_by_token_and_the_finding_ends"]),
    ("The collector stores the SHA-256", &["cluster_enrolment::tier3_the_leader_accepts_agents_and_join_tokens_outlive_it",
        "push/tokens::vms_behind_a_nat_enrol_with_the_token_of_their_cluster"]),
    ("The right to create and revoke tokens", &[
        "scenarios/cluster_access::join_tokens_are_created_and_revoked_with_the_role_of_admins_tier3",
        "access/tests::rbac_decides_what_a_token_may_see",
        "access/reviews/tests::rights_are_reviewed_with_all_that_is_known_of_the_caller"]),
    ("connects to another VM |", &["scenarios/relay::a_relay_that_lies_only_makes_its_own_vms_silent"]),
    ("changes, replays or forges", &["scenarios/relay::a_relay_that_lies_only_makes_its_own_vms_silent"]),
    ("closes the connection |", &["scenarios/relay::a_relay_that_lies_only_makes_its_own_vms_silent"]),
    ("is slow, or does not answer", &["scenarios/relay::a_relay_that_lies_only_makes_its_own_vms_silent"]),
    ("sends no valid answer to", &["scenarios/relay::a_relay_that_lies_only_makes_its_own_vms_silent"]),
    ("answers `CONNECT` itself", &["push/own_address::a_dialled_agent_is_asked_for_a_proof_only_if_it_can_be_checked",
        "enrolment/tests/table::an_address_that_others_can_use_needs_what_only_root_reads"]),
    ("The rules for addresses apply twice", &["scenarios/relay::a_destination_that_the_relay_does_not_allow_is_named"]),
    ("Who is answered |", &["push_agent::an_impostor_that_the_agent_connects_to_gets_nothing",
        "push/scheduler::one_connection_at_most_and_only_without_direct_pulls"]),
    ("The agent itself never reads that file", &[
        "push_agent/node_proof::tier2_the_agent_never_opens_the_file_with_which_root_vouches_for_it"]),
    ("The collector accepts the proof if", &["push/node_proofs::a_proof_by_anybody_else_enrols_nobody"]),
    ("vouches for none: use a join token", &[
        "join_tests/unconfirmed::a_uuid_that_follows_from_the_name_is_no_second_fact_while_another_vm_has_it"]),
    ("agent that is dialled is asked for a proof", &[
        "push/own_address::a_dialled_agent_is_asked_for_a_proof_only_if_it_can_be_checked"]),
];

fn normal(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The list items, or the rows of the table, in a section of a page, each with the line that
/// follows: the words that begin an entry may go on there.
fn items(page: &str, section: &str, mark: &str) -> Vec<String> {
    let lines = page.lines().skip_while(|line| *line != section).skip(1);
    let lines: Vec<&str> = lines.take_while(|line| !line.starts_with("## ")).collect();
    let pairs = lines.windows(2).filter(|pair| !pair[1].starts_with("|---"));
    let found = pairs.filter_map(|pair| Some((pair[0].strip_prefix(mark)?, pair[1])));
    let texts = found.map(|(first, next)| normal(&format!("{first} {next}")));
    texts.collect()
}

/// Names of the tests in a Rust source.
fn tests(text: &str) -> BTreeSet<&str> {
    let (mut found, mut marked) = (BTreeSet::new(), false);
    for line in text.lines().map(str::trim) {
        marked |= line == "#[test]" || line.starts_with("#[tokio::test");
        if let Some(function) = line.strip_prefix("async ").unwrap_or(line).strip_prefix("fn ") {
            let name = function.split(['(', '<']).next();
            found.extend(name.filter(|_| std::mem::take(&mut marked)));
        }
    }
    found
}

#[test]
fn each_promise_has_an_entry_and_each_entry_is_on_its_page() {
    let (mut wrong, mut seen) = (Vec::new(), 0);
    for (name, promises) in PAGES {
        let page = fs::read_to_string(tree::root().join(name)).unwrap();
        for (section, mark) in COMPLETE {
            for item in items(&page, section, mark) {
                let held = promises.iter().filter(|one| item.starts_with(one.0)).count();
                if held != 1 {
                    wrong.push(format!("{name}: {held} entries, not one, begin: {item}"));
                }
                seen += 1;
            }
        }
        let page = normal(&page);
        for (start, _) in promises {
            if page.matches(start).count() != 1 {
                wrong.push(format!("{name}: {start:?} is not there exactly once"));
            }
        }
    }
    assert!(seen > 40, "{seen} promises are in the sections of COMPLETE");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn each_test_of_a_promise_exists() {
    let (sources, mut lost) = (tree::sources(), Vec::new());
    let exists = |test: &str| {
        let (module, function) = test.split_once("::")?;
        let file = format!("{module}.rs");
        let mut files = sources.iter().filter(|one| one.0.ends_with(&file));
        files.find(|(_, text)| tests(text).contains(function))
    };
    for (page, promises) in PAGES {
        for (start, tests) in promises {
            let missing: Vec<_> = tests.iter().filter(|test| exists(test).is_none()).collect();
            if tests.is_empty() || !missing.is_empty() {
                lost.push(format!("{page}: {start:?} has lost its tests {missing:?}"));
            }
        }
    }
    assert!(lost.is_empty(), "{}", lost.join("\n"));
}

#[test]
fn only_functions_with_the_attribute_are_tests() {
    let text = "#[test]\n#[expect(x)]\nfn a() {\nfn b() {}\n#[tokio::test(x)]\nasync fn c() {\nfn d(";
    assert_eq!(tests(text), BTreeSet::from(["a", "c"]));
}
