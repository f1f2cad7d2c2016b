/** Projects of organizations above that devices within reach have. */

export interface NamedProject {
  id: string;
  name: string;
}

/** As a summary of devices tells of a project; without a name where it is out of reach. */
export interface CountedProject {
  projectUuid: string;
  projectName: string | null;
  count: number;
}

/** Those of the counted ones that are not among the own, and can be named. */
export function notAmong(own: readonly NamedProject[], counted: readonly CountedProject[]): CountedProject[] {
  const ids = new Set(own.map(({ id }) => id));
  return counted.filter(({ projectUuid, projectName }) => projectName !== null && !ids.has(projectUuid));
}
