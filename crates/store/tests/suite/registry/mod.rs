//! The promises of the registry on both dialects. Each scene has a registry of its own.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "these are tests: a broken promise ends them"
)]

mod alarm_counts;
mod alarms;
mod appearance;
mod board_links;
mod boards;
mod claims;
mod clock;
mod credentials;
mod devices;
mod emails;
mod findings;
pub mod given;
mod images;
mod labels;
mod large_rows;
mod lists;
mod moves;
mod notifications;
mod people;
mod placed;
mod places;
mod projects;
mod puts;
mod selections;
mod settings;
mod timers;
mod tree;
mod upkeep;
mod usage;
mod versions;
mod views;

pub use alarm_counts::*;
pub use alarms::*;
pub use appearance::*;
pub use board_links::*;
pub use boards::*;
pub use claims::*;
pub use clock::*;
pub use credentials::*;
pub use devices::*;
pub use emails::*;
pub use findings::*;
pub use images::*;
pub use labels::*;
pub use large_rows::*;
pub use lists::*;
pub use moves::*;
pub use notifications::*;
pub use people::*;
pub use placed::*;
pub use places::*;
pub use projects::*;
pub use puts::*;
pub use selections::*;
pub use settings::*;
pub use timers::*;
pub use tree::*;
pub use upkeep::*;
pub use usage::*;
pub use versions::*;
pub use views::*;

/// Hands every scene to a macro, which makes a test of each.
macro_rules! registry_scenes {
    ($test:ident) => {
        $test! {
            organization_has_its_position_in_the_tree
            deleted_parent_accepts_no_child
            depth_of_the_tree_is_bounded
            subtree_has_its_totals
            organizations_are_listed_by_level
            organization_is_changed_in_place
            organization_in_use_cannot_be_deleted
            branch_moves_with_its_contents
            branch_moves_to_an_allowed_parent_only
            branch_with_devices_moves_within_limits
            moving_branch_loses_no_child
            branding_is_stored_unchanged
            dashboard_is_inherited_below
            oldest_board_is_first
            boards_are_inherited_together
            board_changes_with_a_current_tag_only
            concurrent_writes_of_a_board_have_one_winner
            boards_of_an_organization_are_bounded
            a_link_is_found_until_it_is_deleted
            links_of_a_board_are_bounded
            link_ends_with_board_organization_or_maker
            device_table_is_stored_with_its_organization
            stored_bytes_of_devices_are_summed
            moved_device_takes_its_usage_along
            usage_is_trusted_only_after_an_orderly_stop
            limited_organization_has_its_usage
            user_name_is_unique
            user_name_is_unique_among_concurrent_requests
            last_system_administrator_stays
            one_of_two_removed_system_administrators_stays
            user_is_stored_unchanged
            account_is_created_whole_or_not_at_all
            a_user_is_changed_and_removed
            activity_of_a_user_moves_forwards_only
            users_are_listed_and_searched
            a_login_is_found_by_either_name
            sessions_live_until_they_end
            sessions_beyond_the_bound_end_oldest_first
            revoked_jwts_are_remembered_until_they_expire
            signing_key_is_permanent
            api_keys_belong_to_their_user
            delivery_is_pending_until_done
            welcome_email_is_created_with_its_user
            letters_are_bounded_an_hour
            nonce_works_once
            a_reset_ends_every_session
            a_new_password_ends_the_other_sessions
            a_new_sign_in_address_is_noticed_once
            device_list_counts_and_filters_active_alarms
            repeated_notice_changes_nothing
            notice_reaches_its_recipients
            notice_for_everybody_reaches_existing_users
            interrupted_spread_of_a_notice_continues
            concurrent_spreads_of_a_notice_deliver_once
            notifications_are_listed_newest_first
            a_notification_is_read_and_unread
            a_range_of_notifications_is_marked
            notifications_after_a_mark_stay_unread
            mark_of_all_and_single_marks_combine
            notifications_are_deleted_with_their_user
            old_notices_expire_and_a_user_keeps_a_bounded_number
            delivery_is_claimed_by_one
            timer_is_claimed_by_one
            job_is_claimed_once_in_its_time
            failures_count_until_their_period_ends
            devices_have_the_timers_of_their_project
            a_timer_is_set_and_removed
            missing_device_keeps_its_former_status
            deliveries_of_a_source_are_bounded
            deliveries_wait_separately_for_each_destination
            a_project_begins_with_an_empty_specification
            specification_is_stored_byte_for_byte
            every_written_design_is_kept
            the_newest_versions_are_kept
            design_is_written_with_a_required_tag_only
            concurrent_writes_with_one_tag_have_one_winner
            exactly_one_write_with_a_required_tag_succeeds
            versions_are_deleted_with_their_project
            projects_are_listed_by_type
            project_is_moved_and_deleted
            device_is_stored_unchanged
            device_number_is_never_reused
            renamed_device_keeps_concurrent_reports
            concurrent_changes_of_a_user_are_all_kept
            concurrent_changes_of_an_organization_are_all_kept
            concurrent_changes_of_an_appearance_are_all_kept
            concurrent_changes_of_a_project_are_all_kept
            used_registry_passes_the_check
            telemetry_store_of_a_number_is_noted_once
            a_copy_is_a_registry
            device_numbers_continue_after_known_ones
            fifty_devices_are_created_concurrently
            a_limit_holds_for_the_whole_subtree
            device_limit_is_exact_for_concurrent_requests
            device_moves_within_limits
            concurrent_moves_in_both_directions_succeed
            project_counts_its_devices_during_moves
            rotated_token_revokes_the_old_one
            activity_of_a_device_moves_forwards_only
            timestamps_ahead_of_the_clock_are_corrected
            newest_identifier_is_found
            report_changes_named_members_alone
            many_devices_are_reported_at_once
            batch_of_reports_is_applied_in_order
            batch_of_reports_is_atomic
            reports_are_serialized
            findings_that_were_taken_over_are_refused
            missing_row_is_named_in_the_refusal
            a_device_is_found_by_its_labels
            label_finds_its_oldest_device
            labels_are_given_to_many_devices_at_once
            label_patches_skip_moved_and_deleted_devices
            tag_without_a_device_is_provisioned
            provisioning_ends_at_the_device_limit
            a_tag_is_provisioned_once
            tag_is_found_in_any_case
            tag_in_any_case_is_provisioned_once
            a_thousand_devices_are_provisioned_at_once
            device_pages_are_exact_in_every_order
            user_pages_are_exact_in_every_order
            pages_are_the_same_from_either_end
            pages_follow_items_of_their_list_alone
            device_searches_of_many_matches_are_exact
            a_search_is_literal_and_without_case
            list_can_be_limited_to_identifiers
            all_devices_beneath_are_listed
            device_list_beneath_is_bounded
            unknown_sort_key_is_refused
            text_with_a_zero_character_is_stored
            location_of_a_report_wins_over_metadata
            placed_devices_are_listed_by_page_and_place_in_the_tree
            clusters_count_devices_in_the_box
            image_is_found_by_its_owner
            image_is_deleted_with_its_owner
            device_filters_are_exact_in_every_order
            filters_narrow_each_other
            much_metadata_is_searched
            unwritten_reports_decide_in_filters
            a_summary_counts_each_device_once
            summary_derives_the_commonest_age_from_the_others
            each_device_of_many_is_created_separately
            limit_holds_for_concurrent_bulks
            repeated_alarm_is_one_and_counted_once
            an_alarm_lives_until_it_is_cleared_and_acknowledged
            alarm_cleared_and_raised_in_one_batch_is_two
            alarm_raised_again_is_added_to_a_list_that_lacks_it
            alarm_of_a_later_list_follows_what_is_newer
            alarm_that_only_the_list_has_is_cleared
            alarm_change_is_noted_with_its_author
            alarm_is_taken_from_an_assignee_who_cannot_see_it
            alarms_are_listed_filtered_and_counted
            alarms_move_with_their_device
            ended_alarms_are_removed_eventually
            active_alarms_of_a_device_are_bounded
            past_alarms_of_a_device_are_bounded
            a_notification_names_its_alarm
            setting_has_a_history
            a_setting_written_twice_is_written_once
            settings_are_written_in_bulk
            deleted_device_takes_its_own_settings_along
            concurrent_writes_of_a_setting_are_all_recorded
            old_history_of_settings_is_removed
            devices_with_much_metadata_are_read_in_pieces
            history_of_large_settings_is_read_in_pieces
            long_notifications_are_read_in_pieces
            view_is_visible_to_its_user_alone
            name_of_a_view_is_unique
            views_of_a_user_are_bounded
            views_are_deleted_with_user_or_organization
        }
    };
}
pub(crate) use registry_scenes;
