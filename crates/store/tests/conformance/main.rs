//! What every backend has to do alike: CNV-3, CNV-4, CFG-7, DLT-5, IDN-1, ENR-2, ENR-7, ROL-2, ROL-4, SYN-4,
//! SYN-6, OPS-2, LIF-5.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod chunks;
mod facts;
mod fixture;
mod nodes;
mod releases;
mod sync;
mod tasks;

use std::sync::Mutex;

use fixture::at;
use store::{FleetMeta, Store};

#[tokio::test(flavor = "multi_thread")]
async fn sqlite() {
    let directories = Mutex::new(Vec::new());
    all(|| {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path().join("muster.db")).unwrap();
        directories.lock().unwrap().push(directory);
        Box::new(store)
    })
    .await;
}

/// Runs every check, each on a store of its own.
async fn all(make: impl Fn() -> Box<Store>) {
    founded_once(&make()).await;
    nodes::a_token_is_burned_with_the_node(&make()).await;
    nodes::a_lost_reply_is_no_loss(&make()).await;
    nodes::a_hostname_and_a_key_are_held_by_one(&make()).await;
    nodes::a_join_without_a_token_is_admitted_once_it_may(&make()).await;
    nodes::a_copied_key_and_capabilities_are_kept(&make()).await;
    nodes::statements_of_sealing_keys_are_relayed(&make()).await;
    nodes::a_node_may_enroll_again_with_a_new_token(&make()).await;
    nodes::removed_nodes_keep_their_history(&make()).await;
    nodes::contacts_are_kept(&make()).await;
    nodes::what_was_heard_of_runs_is_kept(&make()).await;
    nodes::what_a_node_says_is_the_matter_is_kept(&make()).await;
    nodes::nodes_are_read_in_pages(&make()).await;
    nodes::prefixes_are_kept_within_a_bound(&make()).await;
    nodes::traits_and_run_requests_are_kept(&make()).await;
    nodes::requests_by_tag_are_kept(&make()).await;
    facts::facts_are_accepted_once(&make()).await;
    facts::runs_make_streaks(&make()).await;
    facts::runs_are_kept_as_they_are_known(&make()).await;
    facts::lists_are_newest_first_and_paged(&make()).await;
    facts::history_is_pruned(&make()).await;
    facts::history_is_pruned_by_bytes(&make()).await;
    facts::a_node_never_has_far_more_than_is_kept(&make()).await;
    sync::sets_are_kept(&make()).await;
    sync::a_side_is_forgotten_whole(&make()).await;
    sync::an_unsound_write_changes_nothing(&make()).await;
    sync::heads_say_how_far_each_is(&make()).await;
    sync::objects_are_listed_in_pages(&make()).await;
    sync::a_removed_node_leaves_no_objects(&make()).await;
    tasks::tasks_are_kept(&make()).await;
    tasks::targets_are_kept(&make()).await;
    tasks::finished_tasks_are_pruned(&make()).await;
    tasks::facts_of_actions_are_found(&make()).await;
    chunks::contents_are_served_in_ranges(&make()).await;
    chunks::chunks_are_closed(&make()).await;
    chunks::bad_chunks_are_refused(&make()).await;
    chunks::trees_are_read_back(&make()).await;
    releases::releases_are_committed_in_order(&make()).await;
    releases::channels_point_to_their_newest_release(&make()).await;
    releases::beacons_are_kept_as_long_as_their_release(&make()).await;
    releases::what_no_release_reaches_is_pruned(&make()).await;
    releases::blobs_are_below_what_names_them(&make()).await;
    releases::an_upload_in_progress_is_safe(&make()).await;
}

async fn founded_once(store: &Store) {
    assert_eq!(store.fleet().await.unwrap(), None);
    let first = FleetMeta { fleet: "acme-1".parse().unwrap(), created: at(1) };
    let second = FleetMeta { fleet: "acme-2".parse().unwrap(), created: at(2) };
    assert_eq!(store.found_fleet(first.clone()).await.unwrap(), first);
    assert_eq!(store.found_fleet(second).await.unwrap(), first, "a fleet is founded once");
    assert_eq!(store.fleet().await.unwrap(), Some(first));
    assert_eq!(store.open_epoch(at(3)).await.unwrap(), 1);
    assert_eq!(store.open_epoch(at(4)).await.unwrap(), 2);
    assert_eq!(store.integrity().await.unwrap(), Vec::<String>::new());
    assert!(store.health().writable);
}
