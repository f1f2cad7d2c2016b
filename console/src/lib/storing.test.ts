import { describe, expect, it } from 'vitest';
import { projectsWith } from './storing';

describe('projects that store an element', () => {
  const storing = [
    { projectUuid: 'rooms', elements: ['climate'] },
    { projectUuid: 'doors', elements: ['state'] },
    { projectUuid: 'empty', elements: null },
  ];

  it('are those whose design has it, and those without a design', () => {
    expect(projectsWith(storing, 'climate')).toEqual(['rooms', 'empty']);
  });

  it('are all where no design has it', () => {
    expect(projectsWith(storing.slice(0, 2), 'wind')).toBeUndefined();
  });
});
