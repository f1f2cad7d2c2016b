import { describe, expect, it } from 'vitest';
import { devicesAddress, leaveAt, topOf } from './listPlace';

describe('the place in a list', () => {
  it('is where that list was left, and the top of another', () => {
    leaveAt('?q=fridge', 4_600);
    expect([topOf('?q=fridge'), topOf(''), devicesAddress()]).toEqual([4_600, 0, '/devices?q=fridge']);
  });

  it('is known however its address is written', () => {
    leaveAt('?filter[meta.floor][eq]=1', 920);
    expect(topOf('?filter%5Bmeta.floor%5D%5Beq%5D=1')).toBe(920);
  });
});
