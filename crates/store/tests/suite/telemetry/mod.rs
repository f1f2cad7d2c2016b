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
            run_sees_the_state_of_the_previous_one
            states_of_runs_are_counted
            concurrent_runs_are_all_kept
            repeated_request_has_no_effect
            concurrent_requests_with_one_key_get_one_answer
            outbox_keeps_its_order_until_done
            replaced_entry_of_the_outbox_keeps_its_position
            parked_entry_has_a_reason
            a_turn_excludes_others_until_it_is_dropped
            dropped_turn_keeps_its_commits
            conflicting_runs_are_stored_once
            forgotten_device_starts_empty
            pages_and_totals_are_exact
            values_keep_storage_order_after_a_clock_step_back
            filters_follow_the_contract
            orders_follow_the_contract
            buckets_include_every_value
            buckets_exclude_values_past_retention
            buckets_by_payload_time_include_late_values
            buckets_are_bounded
            a_series_is_read_whole_in_pieces
            values_stored_during_an_export_are_excluded
            export_of_a_deleted_series_fails
            last_values_are_merged
            last_values_are_bounded
            values_of_one_run_have_ids_of_their_own
            deleted_series_starts_empty
            values_past_retention_are_hidden
            dropped_values_stay_dropped
            series_extent_covers_visible_values
            hidden_values_do_not_count_as_stored
            few_values_are_dropped_on_request_only
            export_omits_values_dropped_meanwhile
            a_cloud_event_is_taken_once
            takers_at_the_same_time_share_the_queue
            a_queue_is_read_by_element_and_page
            expired_cloud_events_are_gone
            one_cloud_event_can_be_removed
            a_full_queue_drops_its_oldest
            history_has_both_kinds_newest_first
            history_of_other_devices_is_hidden
            a_stream_resumes_after_an_event
            stream_has_events_in_the_order_of_history
            lagging_stream_is_referred_to_history
            history_past_retention_is_gone
        }
    };
}
pub(crate) use telemetry_scenes;
