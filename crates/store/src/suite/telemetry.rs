//! What every telemetry adapter promises. Each scene has a device of its own, so that they can share a store.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "these are tests: a broken promise ends them"
)]

mod exports;
mod follow;
pub mod given;
mod history;
mod queue;
mod runs;
mod values;

pub use exports::*;
pub use follow::*;
pub use history::*;
pub use queue::*;
pub use runs::*;
pub use values::*;

/// Runs every scene that needs nothing but a store whose queues hold `queue_max` events.
pub async fn every_promise(t: &dyn crate::telemetry::Telemetry, queue_max: u64) {
    a_run_is_remembered(t).await;
    a_run_sees_what_the_one_before_left(t).await;
    what_runs_leave_is_counted(t).await;
    runs_at_the_same_time_lose_nothing(t).await;
    a_repeated_request_does_nothing(t).await;
    two_at_once_with_one_key_get_one_answer(t).await;
    the_outbox_is_in_order_until_it_is_done(t).await;
    an_entry_of_the_outbox_is_replaced_in_its_place(t).await;
    a_parked_entry_says_why(t).await;
    a_commit_that_sets_out_is_told_of_before_the_next_run(t).await;
    a_forgotten_device_begins_anew(t).await;
    pages_and_totals_are_exact(t).await;
    ids_that_step_back_break_nothing(t).await;
    filters_hold_as_the_contract_says(t).await;
    orders_are_as_the_contract_says(t).await;
    a_series_is_read_whole_in_pieces(t).await;
    what_comes_meanwhile_is_no_part_of_an_export(t).await;
    an_export_of_what_went_away_fails(t).await;
    last_values_are_merged(t).await;
    last_values_are_bounded(t).await;
    values_of_one_run_have_ids_of_their_own(t).await;
    a_deleted_series_begins_anew(t).await;
    a_cloud_event_is_taken_once(t).await;
    takers_at_the_same_time_share_the_queue(t).await;
    a_queue_is_read_by_element_and_page(t).await;
    expired_cloud_events_are_gone(t).await;
    one_cloud_event_can_be_removed(t).await;
    a_full_queue_drops_its_oldest(t, queue_max).await;
    history_has_both_kinds_newest_first(t).await;
    history_of_others_is_not_shown(t).await;
    a_stream_resumes_after_an_event(t).await;
    those_who_follow_are_told_what_history_has_in_its_order(t).await;
    who_comes_between_is_sent_to_history(t).await;
    // Last: it forgets what is old, of every device.
    history_past_retention_is_gone(t).await;
}
