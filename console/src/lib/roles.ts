import type { Role } from '../api/client';

/** From low to high. */
export const ROLES: readonly Role[] = [
  'basicUser',
  'technician',
  'manager',
  'administrator',
  'developer',
  'systemAdmin',
];

/** Whether a role reaches another. The server decides; the console leaves out what it would refuse. */
export function reaches(role: Role | undefined, needed: Role): boolean {
  return role !== undefined && ROLES.indexOf(role) >= ROLES.indexOf(needed);
}
