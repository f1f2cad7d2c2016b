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
            organizations_know_their_place
            a_parent_that_is_gone_takes_no_child
            the_tree_has_a_deepest_level
            a_subtree_is_summed_up
            organizations_are_listed_by_level
            an_organization_is_changed_where_it_is
            an_organization_in_use_stays
            a_branch_moves_with_all_that_hangs_on_it
            a_branch_moves_only_where_it_may_hang
            a_branch_with_devices_moves_where_there_is_room
            a_branch_that_moves_loses_no_child
            a_branding_is_kept_as_it_was_given
            a_dashboard_is_lent_to_those_beneath
            the_oldest_board_is_the_first
            boards_are_lent_together
            a_board_is_changed_by_those_who_know_it
            of_two_writers_of_a_board_one_wins
            an_organization_has_so_many_boards
            a_link_is_found_until_it_is_deleted
            a_board_has_so_many_links
            links_go_with_what_they_hang_on
            a_device_table_has_one_place
            what_devices_store_is_summed_up
            a_device_takes_its_figure_along
            figures_are_right_until_something_is_stored
            limited_organizations_know_how_full_they_are
            two_users_of_one_name
            two_users_of_one_name_at_the_same_time
            one_system_administrator_stays
            of_two_system_administrators_who_go_at_once_one_stays
            a_user_is_kept_as_it_was_given
            an_account_is_founded_whole_or_not_at_all
            a_user_is_changed_and_removed
            users_are_touched_forwards_only
            users_are_listed_and_searched
            a_login_is_found_by_either_name
            sessions_live_until_they_end
            sessions_beyond_the_bound_end_oldest_first
            revoked_jwts_are_remembered_until_they_expire
            the_signing_key_stays
            api_keys_belong_to_their_user
            a_delivery_waits_until_it_is_made
            a_welcome_goes_out_with_its_user
            letters_hold_the_bounds_of_an_hour
            a_nonce_is_good_once
            a_reset_ends_every_session
            a_new_password_ends_the_other_sessions
            a_new_sign_in_address_is_noticed_once
            active_alarms_of_devices_are_counted_and_filtered_by
            a_notice_given_out_again_changes_nothing
            a_notice_reaches_those_whom_it_is_for
            a_notice_for_everybody_is_for_those_who_are_there
            a_spread_that_was_cut_off_goes_on
            two_that_spread_one_notice_do_it_once
            notifications_are_listed_newest_first
            a_notification_is_read_and_unread
            a_range_of_notifications_is_marked
            what_comes_after_a_mark_is_not_touched
            a_mark_of_everything_and_single_ones_go_together
            a_user_and_its_notifications_go_together
            old_notices_go_and_a_user_keeps_so_many
            devices_have_the_timers_of_their_project
            a_timer_is_set_and_removed
            a_missing_device_keeps_the_status_before
            a_source_of_deliveries_has_a_bound
            deliveries_wait_apart_for_each_destination
            a_project_begins_with_an_empty_specification
            a_specification_is_kept_byte_for_byte
            every_design_that_is_written_is_kept
            the_newest_versions_are_kept
            a_design_is_written_only_as_it_was_required_to_be
            of_those_who_require_one_tag_one_writes
            exactly_one_writes_where_all_require_one_tag
            versions_go_with_their_project
            projects_are_listed_by_type
            a_project_moves_and_goes
            a_device_is_kept_as_it_was_given
            a_number_is_never_given_twice
            a_renamed_device_keeps_what_its_design_says_meanwhile
            changes_of_one_user_at_the_same_time
            changes_of_one_organization_at_the_same_time
            changes_of_what_an_organization_shows_at_the_same_time
            changes_of_one_project_at_the_same_time
            a_used_registry_is_sound
            a_copy_is_a_registry
            device_numbers_go_on_behind_those_that_are_known
            fifty_devices_at_the_same_time
            a_limit_holds_for_the_whole_subtree
            the_last_place_is_taken_once
            a_device_moves_where_there_is_room
            moves_both_ways_at_the_same_time
            projects_count_their_devices_whoever_comes_and_goes
            a_rotated_token_ends_the_old_one
            devices_are_touched_forwards_only
            moments_of_a_clock_that_was_ahead_come_back
            the_newest_identifier_is_known
            a_report_changes_what_it_names
            many_devices_are_reported_of_at_once
            a_batch_is_taken_in_its_order
            a_batch_is_kept_whole_or_not_at_all
            reports_are_one_after_the_other
            what_is_gone_is_said_to_be_gone
            a_device_is_found_by_its_labels
            the_oldest_device_of_a_label_is_meant
            labels_are_given_to_many_devices_at_once
            labels_are_patched_where_the_device_is
            a_tag_is_provisioned_where_nobody_carries_it
            provisioning_ends_where_there_is_no_room
            a_tag_is_provisioned_once
            tag_is_found_in_any_case
            tag_in_any_case_is_provisioned_once
            a_thousand_devices_are_provisioned_at_once
            device_pages_are_exact_in_every_order
            user_pages_are_exact_in_every_order
            pages_are_the_same_from_either_end
            device_searches_are_exact_however_much_they_find
            a_search_is_literal_and_without_case
            a_list_can_be_held_to_ids
            all_devices_beneath_are_told
            devices_are_told_up_to_a_number
            a_list_sorts_by_what_it_knows_only
            a_text_with_a_nul_is_no_trouble
            a_device_is_where_its_report_or_its_metadata_says
            placed_devices_are_listed_by_page_and_place_in_the_tree
            clusters_count_what_stands_in_the_box
            an_image_belongs_to_its_owner
            an_image_goes_with_its_owner
            device_filters_are_exact_in_every_order
            filters_narrow_each_other
            much_metadata_is_looked_at
            what_is_not_written_yet_decides
            a_summary_counts_each_device_once
            a_summary_tells_of_the_commonest_age_what_the_others_leave
            each_of_many_devices_is_made_by_itself
            a_limit_holds_among_many_that_make_many
            an_alarm_raised_again_is_one_and_counted_once
            an_alarm_lives_until_it_is_cleared_and_acknowledged
            an_alarm_that_ends_and_begins_in_one_batch_is_two
            an_alarm_is_changed_by_people
            alarms_are_listed_filtered_and_counted
            alarms_go_where_their_device_goes
            alarms_that_are_over_are_removed_in_the_end
            living_alarms_of_a_device_are_bounded
            past_alarms_of_a_device_are_bounded
            a_notification_names_its_alarm
            a_setting_keeps_its_past
            a_setting_written_twice_is_written_once
            settings_are_written_in_bulk
            settings_of_a_device_that_is_gone
            settings_of_one_name_at_the_same_time
            the_past_of_settings_ends
            devices_with_much_metadata_are_not_read_all_at_once
            the_past_of_large_settings_is_not_read_all_at_once
            long_notifications_are_not_read_all_at_once
            a_view_is_its_users_alone
            a_name_of_a_view_is_taken_once
            a_user_has_so_many_views
            views_go_with_what_they_hang_on
        }
    };
}
pub(crate) use registry_scenes;
