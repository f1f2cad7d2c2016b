//! The promises of every telemetry adapter. Each scene has a store of its own.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "these are tests: a broken promise ends them"
)]

mod buckets;
pub mod contended;
mod exports;
mod follow;
pub mod given;
mod history;
mod queue;
mod retention;
mod runs;
mod values;

pub use buckets::*;
pub use exports::*;
pub use follow::*;
pub use history::*;
pub use queue::*;
pub use retention::*;
pub use runs::*;
pub use values::*;

/// Cloud events that a queue holds in the store of a scene: see [`a_full_queue_drops_its_oldest`].
pub const QUEUE_MAX: u64 = 100;

/// Hands every scene to a macro, which makes a test of each.
macro_rules! telemetry_scenes {
    ($test:ident) => {
        $test! {
            a_run_is_remembered
            a_run_sees_what_the_one_before_left
            what_runs_leave_is_counted
            runs_at_the_same_time_lose_nothing
            a_repeated_request_does_nothing
            two_at_once_with_one_key_get_one_answer
            the_outbox_is_in_order_until_it_is_done
            an_entry_of_the_outbox_is_replaced_in_its_place
            a_parked_entry_says_why
            a_turn_excludes_others_until_it_is_dropped
            a_dropped_turn_leaves_what_it_committed
            runs_whose_commits_conflict_are_there_once
            a_forgotten_device_begins_anew
            pages_and_totals_are_exact
            ids_that_step_back_break_nothing
            filters_hold_as_the_contract_says
            orders_are_as_the_contract_says
            buckets_hold_what_every_value_says
            buckets_leave_out_what_is_not_kept
            buckets_of_a_payloads_time_take_what_came_late
            buckets_are_bounded
            a_series_is_read_whole_in_pieces
            what_comes_meanwhile_is_no_part_of_an_export
            an_export_of_what_went_away_fails
            last_values_are_merged
            last_values_are_bounded
            values_of_one_run_have_ids_of_their_own
            a_deleted_series_begins_anew
            what_is_not_kept_is_not_shown
            what_is_dropped_stays_gone
            a_series_extends_over_what_is_shown_of_it
            little_is_dropped_only_when_it_is_asked_for
            an_export_leaves_out_what_is_dropped_on_the_way
            a_cloud_event_is_taken_once
            takers_at_the_same_time_share_the_queue
            a_queue_is_read_by_element_and_page
            expired_cloud_events_are_gone
            one_cloud_event_can_be_removed
            a_full_queue_drops_its_oldest
            history_has_both_kinds_newest_first
            history_of_others_is_not_shown
            a_stream_resumes_after_an_event
            those_who_follow_are_told_what_history_has_in_its_order
            who_comes_between_is_sent_to_history
            history_past_retention_is_gone
        }
    };
}
pub(crate) use telemetry_scenes;
