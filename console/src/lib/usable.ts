/** Projects that are of use to somebody: their own, and those above them that their devices already have. */

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

/** The own ones and those that devices have, by their names. */
export function usable(own: readonly NamedProject[], counted: readonly CountedProject[]): NamedProject[] {
  const others = notAmong(own, counted).map(({ projectUuid, projectName }) => ({
    id: projectUuid,
    name: projectName ?? '',
  }));
  return others.length === 0 ? [...own] : [...own, ...others].sort((one, two) => one.name.localeCompare(two.name));
}
