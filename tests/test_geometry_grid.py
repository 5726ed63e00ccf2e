"""The way to the model grid and back."""

import numpy as np
import pytest

from usdehaze.cine import Cartesian, Polar, Sector
from usdehaze.geometry import ModelGrid, make_mapper, sector_mask
from usdehaze.geometry.sector import polar_coordinates

FAN = Sector(apex_x=127.3, apex_y=-6.2, r_min=12.0, r_max=240.0, angle_min=-0.62, angle_max=0.66)
FRAMES = [
    (FAN, (256, 256)),
    (Sector(60.2, 4.0, 8.0, 300.0, -0.5, 0.5), (311, 121)),  # tall, sides cut off
    (Sector(200.5, -90.0, 130.0, 250.0, -0.7, 0.7), (143, 401)),  # wide, bottom cut off, curved array
    (Sector(128.0, 3.0, 5.0, 250.0, -0.6, 0.6, aspect=1.5), (170, 256)),
]


def cartesian(sector):
    return Cartesian(sector=sector, found_by="file")


def polar(height, width):
    return Polar(np.linspace(0.005, 0.15, height), np.linspace(-0.6, 0.6, width))


def smooth_field(radius, angle, sector):
    """A few cycles over the fan, dB in [-50, -10]."""
    d = (radius - sector.r_min) / (sector.r_max - sector.r_min)
    a = (angle - sector.angle_min) / (sector.angle_max - sector.angle_min)
    return -30 + 20 * np.cos(2 * np.pi * 2 * d) * np.cos(2 * np.pi * 1.5 * a)


def grid_coordinates(sector, grid):
    d = sector.r_min + (sector.r_max - sector.r_min) * (np.arange(grid.n_depth) + 0.5) / grid.n_depth
    a = sector.angle_min + (sector.angle_max - sector.angle_min) * (np.arange(grid.n_angle) + 0.5) / grid.n_angle
    return np.meshgrid(d, a, indexing="ij")


def between_valid_cells(mapper, sector, shape):
    """Pixels all of whose neighbours on the grid hold image data; the others take values of the nearest that do."""
    radius, angle = polar_coordinates(sector, shape)
    d = (radius - sector.r_min) / (sector.r_max - sector.r_min) * mapper.grid.n_depth - 0.5
    a = (angle - sector.angle_min) / (sector.angle_max - sector.angle_min) * mapper.grid.n_angle - 0.5
    d, a = np.clip(d, 0, mapper.grid.n_depth - 1), np.clip(a, 0, mapper.grid.n_angle - 1)
    rows, columns = (np.floor(d).astype(int), np.ceil(d).astype(int)), (np.floor(a).astype(int), np.ceil(a).astype(int))
    return np.all([mapper.valid[row, column] for row in rows for column in columns], axis=0)


@pytest.mark.parametrize(("sector", "shape"), FRAMES)
def test_smooth_field_reaches_the_model_grid_and_returns(sector, shape):
    mapper = make_mapper(cartesian(sector), shape)
    inside = sector_mask(sector, shape)
    native = np.where(inside, smooth_field(*polar_coordinates(sector, shape), sector), -60).astype(np.float32)[None]
    on_grid = smooth_field(*grid_coordinates(sector, mapper.grid), sector)
    model = mapper.to_model(native)[0]
    wide = grid_coordinates(sector, mapper.grid)[0] > sector.r_min + 0.1 * (sector.r_max - sector.r_min)
    error = np.abs(model - on_grid)
    assert error[mapper.valid & wide].max() < 1.5  # of 40 dB; a beam that took in black would be 30 dB off
    assert error[mapper.valid & wide].mean() < 0.15
    back = mapper.from_model(np.where(mapper.valid, on_grid, 99)[None], -60.0)[0]
    assert np.abs(back - native[0])[inside & between_valid_cells(mapper, sector, shape)].max() < 0.8
    assert np.abs(back - native[0])[inside].max() < 1.2  # where the frame cuts the fan off
    assert (back[~inside] == -60).all()


@pytest.mark.parametrize(("sector", "shape"), FRAMES)
def test_zero_gain_returns_the_same_bits(sector, shape):
    frames = np.random.default_rng(0).uniform(-60, 0, (3, *shape)).astype(np.float32)
    frames[0, ::2] = -0.0
    mapper = make_mapper(cartesian(sector), shape)
    out = mapper.apply_gain(frames, np.zeros((3, 128, 128), np.float32))
    assert out.tobytes() == frames.tobytes()


@pytest.mark.parametrize(("sector", "shape"), FRAMES)
def test_gain_leaves_the_outside_bit_for_bit_and_reaches_every_pixel_inside(sector, shape):
    frames = np.random.default_rng(1).uniform(-60, 0, (2, *shape)).astype(np.float32)
    frames[:, :, ::3] = -0.0
    before = frames.copy()
    out = make_mapper(cartesian(sector), shape).apply_gain(frames, np.full((2, 128, 128), -7.0, np.float32))
    inside = sector_mask(sector, shape)
    assert out[:, ~inside].tobytes() == before[:, ~inside].tobytes()
    np.testing.assert_allclose(out[:, inside], before[:, inside] - 7, atol=2e-5)
    assert frames.tobytes() == before.tobytes()


@pytest.mark.parametrize(("sector", "shape"), FRAMES)
def test_gain_is_exact_on_a_ramp_and_clamps_at_the_edge(sector, shape):
    grid = ModelGrid(64, 96)
    mapper = make_mapper(cartesian(sector), shape, grid)
    r, a = grid_coordinates(sector, grid)
    gain = -(0.02 * r + 3 * a)
    told = np.where(mapper.valid, gain, 99)[None].astype(np.float32)
    out = mapper.apply_gain(np.zeros((1, *shape), np.float32), told)[0]
    radius, angle = polar_coordinates(sector, shape)
    expected = -(0.02 * np.clip(radius, r.min(), r.max()) + 3 * np.clip(angle, a.min(), a.max()))
    inside = sector_mask(sector, shape)
    exact = inside & between_valid_cells(mapper, sector, shape)
    np.testing.assert_allclose(out[exact], expected[exact], atol=1e-4)
    cell = 0.02 * np.diff(r[:2, 0]).item() + 3 * np.diff(a[0, :2]).item()
    np.testing.assert_allclose(out[inside], expected[inside], atol=cell)


def test_frame_on_the_grid_is_not_resampled():
    frames = np.random.default_rng(2).uniform(-60, 0, (2, 128, 128)).astype(np.float32)
    gain = np.random.default_rng(3).uniform(-20, 0, (2, 128, 128)).astype(np.float32)
    for geometry in (polar(128, 128), Cartesian()):
        mapper = make_mapper(geometry, (128, 128))
        assert np.array_equal(mapper.to_model(frames), frames)
        assert np.array_equal(mapper.apply_gain(frames, gain), frames + gain)
        assert mapper.valid.all()


def test_to_model_of_a_frame_on_the_grid_is_a_copy():
    frames = np.zeros((1, 128, 128), np.float32)
    make_mapper(Cartesian(), (128, 128)).to_model(frames)[:] = -1
    assert (frames == 0).all()


def test_shrinking_averages_whole_cells():
    frames = np.random.default_rng(4).uniform(-60, 0, (2, 512, 256)).astype(np.float32)
    model = make_mapper(polar(512, 256), (512, 256)).to_model(frames)
    np.testing.assert_allclose(model, frames.reshape(2, 128, 4, 128, 2).mean(axis=(2, 4)), atol=1e-4)


@pytest.mark.parametrize("shape", [(1, 1), (77, 301), (256, 128), (1000, 33), (128, 64)])
def test_rectangles_of_any_size_keep_constants_and_ramps(shape):
    mapper = make_mapper(Cartesian(), shape)
    ramp = (np.linspace(-50, -10, shape[0])[:, None] + np.zeros(shape[1])).astype(np.float32)[None]
    model = mapper.to_model(ramp)
    assert abs(model.mean() - ramp.mean()) < 0.01
    back = mapper.from_model(model, 0.0)
    step = 40 / max(shape[0], 1)
    assert np.abs(back - ramp).max() <= max(step, 40 / 128) + 1e-3  # half a cell of either grid, at the ends
    gained = mapper.apply_gain(ramp, np.full((1, 128, 128), -2.5, np.float32))
    np.testing.assert_allclose(gained, ramp - 2.5, atol=2e-5)


def test_fan_cut_by_the_frame_is_valid_only_inside_it():
    sector = Sector(64.0, 0.0, 0.0, 200.0, -0.6, 0.6)
    mapper = make_mapper(cartesian(sector), (150, 129))
    r, a = grid_coordinates(sector, mapper.grid)
    x, y = 64 + r * np.sin(a), r * np.cos(a)
    deep = (x > 1) & (x < 127) & (y < 148)
    beyond = (x < -3) | (x > 131) | (y > 152)
    assert mapper.valid[deep].all()
    assert not mapper.valid[beyond].any()
    frames = np.full((1, 150, 129), -20, np.float32)
    np.testing.assert_allclose(mapper.to_model(frames), -20, atol=1e-4)  # the nearest valid value
    # nothing is known of what was not seen: pixels at the frame's border take the gain of the nearest valid cell
    lowered = mapper.apply_gain(frames, np.where(mapper.valid, -6, 0).astype(np.float32)[None])
    np.testing.assert_allclose(lowered[:, mapper.image_mask], -26, atol=1e-4)


def test_black_around_the_fan_does_not_leak_into_the_outer_beams():
    frames = np.where(sector_mask(FAN, (256, 256)), -15, -60).astype(np.float32)[None]
    np.testing.assert_allclose(make_mapper(cartesian(FAN), (256, 256)).to_model(frames), -15, atol=1e-4)


def test_fine_native_speckle_is_averaged_not_picked():
    """The mean of m independent pixels has 1 / sqrt(m) of their spread."""
    sector = Sector(400.0, 0.0, 0.0, 800.0, -0.45, 0.45)
    noise = np.random.default_rng(5).normal(-30, 5, (1, 800, 801)).astype(np.float32)
    deep = make_mapper(cartesian(sector), (800, 801)).to_model(noise)[0, 64:]
    assert deep.std() < 5 / 4  # cells are 6.25 pixels deep and 2.8 to 5.6 wide


def test_frames_do_not_depend_on_how_many_are_mapped_at_once():
    frames = np.random.default_rng(6).uniform(-60, 0, (35, 64, 64)).astype(np.float32)
    mapper = make_mapper(cartesian(Sector(32.0, 0.0, 3.0, 60.0, -0.5, 0.5)), (64, 64))
    model = mapper.to_model(frames)
    assert np.array_equal(model[34:], mapper.to_model(frames[34:]))
    assert np.array_equal(mapper.apply_gain(frames, model)[34:], mapper.apply_gain(frames[34:], model[34:]))


def test_what_does_not_fit_is_refused():
    mapper = make_mapper(cartesian(FAN), (256, 256))
    with pytest.raises(ValueError, match=r"frames must be \(T, 256, 256\), found \(1, 255, 256\)"):
        mapper.to_model(np.zeros((1, 255, 256), np.float32))
    with pytest.raises(ValueError, match="found 1 for 2 frames"):
        mapper.apply_gain(np.zeros((2, 256, 256), np.float32), np.zeros((1, 128, 128), np.float32))
    with pytest.raises(ValueError, match="sector holds no pixel"):
        make_mapper(cartesian(Sector(-900.0, -900.0, 1.0, 20.0, -0.5, 0.5)), (256, 256))
    with pytest.raises(ValueError, match="at least one row"):
        ModelGrid(0, 128)
