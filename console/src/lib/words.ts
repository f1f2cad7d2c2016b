import type { Notification, Role, StatusText } from '../api/client';
import { type Failure, OWN_FAULT } from '../api/failure';
import { m } from '../paraglide/messages';
import type { Locale } from '../paraglide/runtime';
import { isOfAddress } from './faultWords';
import { localized } from './format';

/** Each language in its own words. */
export const LANGUAGE_NAMES: Record<Locale, string> = { en: 'English', de: 'Deutsch' };

export function statusWord(status: StatusText): string {
  switch (status) {
    case 'none':
      return m.status_none();
    case 'good':
      return m.status_good();
    case 'info':
      return m.status_info();
    case 'warning':
      return m.status_warning();
    case 'critical':
      return m.status_critical();
    case 'missing':
      return m.status_missing();
  }
}

export function roleWord(role: Role): string {
  switch (role) {
    case 'basicUser':
      return m.role_basic_user();
    case 'technician':
      return m.role_technician();
    case 'manager':
      return m.role_manager();
    case 'administrator':
      return m.role_administrator();
    case 'developer':
      return m.role_developer();
    case 'systemAdmin':
      return m.role_system_admin();
  }
}

/** What a role may do, in a sentence. */
export function roleHint(role: Role): string {
  switch (role) {
    case 'basicUser':
      return m.role_hint_basic_user();
    case 'technician':
      return m.role_hint_technician();
    case 'manager':
      return m.role_hint_manager();
    case 'administrator':
      return m.role_hint_administrator();
    case 'developer':
      return m.role_hint_developer();
    case 'systemAdmin':
      return m.role_hint_system_admin();
  }
}

/** What went wrong, for the person in front of the screen. What the server says of fields is told by `faultWords`. */
export function failureWords(failure: Failure): string {
  switch (failure.status) {
    case OWN_FAULT:
      return m.failure_own();
    case 0:
      return m.failure_unreachable();
    case 401:
      return m.failure_signed_out();
    case 403:
      return m.failure_forbidden();
    case 404:
      return m.failure_missing();
    case 409:
    case 412:
      return m.failure_changed();
    case 413:
      return m.failure_too_large();
    case 429:
      return m.failure_too_many({ seconds: failure.retryAfter ?? 60 });
    case 503:
      return m.failure_busy();
    default:
      if (failure.status >= 500) return m.failure_server();
      if (failure.fields.length === 0) return m.fault_other({ reason: failure.message });
      return isOfAddress(failure.fields) ? m.failure_address() : m.failure_invalid();
  }
}

/** What a notification says, in the console's language where it has it. */
export function notificationText(notification: Notification): string {
  const texts = Object.entries(notification.translations).map(([locale, text]) => [locale, text.message]);
  return localized(Object.fromEntries(texts));
}
