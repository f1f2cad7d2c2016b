import type { Role } from '../api/client';

const RANK: readonly Role[] = ['basicUser', 'technician', 'manager', 'administrator', 'developer', 'systemAdmin'];

/** Whether a role reaches another. The server decides; the console leaves out what it would refuse. */
export function reaches(role: Role | undefined, needed: Role): boolean {
  return role !== undefined && RANK.indexOf(role) >= RANK.indexOf(needed);
}
