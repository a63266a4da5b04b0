"""How long trials are predicted to take: bytes over links, and a server that others keep busy."""

from __future__ import annotations

import pytest

from plimsoll_lab.experiment.plan_summary import describe_plan
from plimsoll_lab.report.plan import render_plan
from plimsoll_lab.stats import finding, goal
from plimsoll_lab.stats.readings import WARM_UP
from plimsoll_lab.stats.resampling import LEAST_BLOCKS
from plimsoll_lab.suite import shipped
from plimsoll_lab.suite.expand import contender_path, expand
from plimsoll_lab.suite.prediction import predicted_s, trial_s
from plimsoll_lab.suite.read import read_file, read_text

ECHO = '[server]\nprotocol = "echo"\n[load]\nprotocol = "echo"\n'
HTTP = (
    '[server]\nprotocol = "http"\nmodel = "fork"\nsynthetic = true\n[load]\nprotocol = "http"\n'
    'requests = 100\nconnections = 5\npath = "/bytes/524288"\n'
)
SATURATOR = (
    '[[role]]\nname = "saturator"\nkind = "load"\non = "h3"\nprotocol = "http"\ntarget = "role:server"\n'
    'path = "/burn/20ms/75672"\nconnections = 15\nmeasured = false\n'
)


def taken_s(text: str) -> float:
    """What one trial of a suite is predicted to take."""
    text = f'name = "it"\nquestion = "Well?"\n{text}'
    plan = expand(read_text(text, source="it.toml", directory="/here"), seed=1)
    return trial_s(plan.suite, plan.points[0])


def network(rate: str = "", delay: str = "1ms") -> str:
    shaped = f'rate = "{rate}"\n' if rate else ""
    return f'[network]\ntopology = "single,3"\ndelay = "{delay}"\n{shaped}'


def test_a_prediction_follows_a_window_and_a_think_time() -> None:
    assert taken_s(ECHO + 'duration = "3s"\n') == pytest.approx(3.0, abs=0.2)
    assert taken_s(ECHO + 'each = 60\nthink = "1s"\nconnections = 100\n') == pytest.approx(60, abs=1)
    assert taken_s(ECHO + 'requests = "100k"\n') == pytest.approx(5, abs=0.2)
    assert taken_s(ECHO + "requests = 1000\nrate = 100\n") == pytest.approx(10, abs=0.2)


def test_a_trial_takes_its_warm_up_too() -> None:
    # A trial of 1 s after a warm-up of 90 s was ended as if it hung, after 70 s.
    warmed_up = ECHO + 'duration = "1s"\n[run]\nrepeat = 3\nwarm_up = "90s"\n'
    assert taken_s(warmed_up) == pytest.approx(91, abs=0.2)
    text = f'name = "it"\nquestion = "Well?"\n{warmed_up}'
    assert predicted_s(expand(read_text(text, source="it.toml", directory="/here"), seed=1)) == pytest.approx(
        273, abs=1
    )


def test_bytes_take_the_time_of_the_narrowest_link() -> None:
    # 100 files of 512 KiB are 419 Mbit, and with their headers 439.
    assert taken_s(HTTP + network("10Mbit")) == pytest.approx(43.9, rel=0.03)
    assert taken_s(HTTP + network("100Mbit")) == pytest.approx(4.4, rel=0.1)
    # The two ways of an echo do not wait for each other.
    echoes = ECHO + 'requests = 1000\nconnections = 8\nsize = "100KB"\n' + network("10Mbit", "0ms")
    assert taken_s(echoes) == pytest.approx(84, rel=0.05)


def test_each_way_has_a_rate_of_its_own() -> None:
    links = "".join(
        f'[[network.link]]\nends = ["{host}", "s1"]\nrate = "100Mbit"\nreverse = {{ rate = "{back}" }}\n'
        for host, back in (("h1", "100Mbit"), ("h2", "10Mbit"))
    )
    # Answers come to h2 by the slow way; requests without a body would not notice it.
    assert taken_s(HTTP + links) == pytest.approx(43.9, rel=0.03)


def test_a_round_trip_is_paid_by_each_request_and_more_of_them_by_each_new_connection() -> None:
    kept = taken_s(HTTP + network(delay="50ms"))
    new = taken_s(HTTP.replace("path =", 'http = "1.0"\npath =') + network(delay="50ms"))
    # 20 requests a connection, 200 ms there and back; a new connection shakes hands first, and its
    # window doubles five times until half a megabyte fits.
    assert kept == pytest.approx(4, rel=0.1)
    assert new == pytest.approx(4 * (2 + 5.2), rel=0.1)


def test_hosts_apart_move_bytes_more_slowly_than_one_machine_does() -> None:
    # A run of 320 trials took 24 minutes; without its links it was said to take six.
    large = HTTP.replace("524288", "8388608")
    together, apart = taken_s(large), taken_s(large + network(delay="0ms"))
    assert apart == pytest.approx(100 / 14.6, rel=0.1)
    assert together < 2


def test_a_way_through_a_forwarder_has_its_links_too() -> None:
    role = '[[role]]\nname = "fwd"\nkind = "forward"\non = "h3"\nmappings = ["*:7000=role:server"]\n'
    straight = ECHO + 'each = 100\nconnections = 1\nthink = "0"\n' + network(delay="10ms")
    by_way = straight.replace("each", 'target = "role:fwd:7000"\neach') + role
    assert taken_s(straight) == pytest.approx(4, rel=0.05)
    assert taken_s(by_way) == pytest.approx(8, rel=0.05)


def test_a_saturator_takes_its_part_of_the_cpu_and_of_the_link() -> None:
    small = HTTP.replace("requests = 100", 'requests = "10k"').replace("524288", "65536")
    quiet, busy = (taken_s(small + network(delay="0ms") + role) for role in ("", SATURATOR))
    assert busy - 1 == pytest.approx(4 * quiet, rel=0.1)
    # An event loop burns for every saturating connection before it serves a measured one again.
    turns = taken_s(HTTP.replace('"fork"', '"select"\nworkers = 1') + network(delay="0ms") + SATURATOR)
    assert turns - 1 == pytest.approx(20 * 15 * 0.02, rel=0.2)
    anew = HTTP.replace('"fork"', '"select"').replace("path =", 'http = "1.0"\npath =')
    # A run on two cores took 65 s with 30 saturating connections, and 1.4 s with one.
    ladder = [SATURATOR.replace("15", str(count)) for count in (30, 1)]
    many, one = (taken_s(anew + network(delay="0ms") + role) for role in ladder)
    assert 40 < many < 90
    assert 1 < one < 4
    # At 10 Mbit/s its answers fill the link, and the measured ones have 5 of 20 parts.
    narrow = taken_s(HTTP + network("10Mbit") + SATURATOR)
    assert narrow == pytest.approx(4 * 43.9, rel=0.05)


def test_a_costly_file_keeps_the_server_as_busy_as_a_synthetic_one() -> None:
    select = HTTP.replace('"fork"', '"select"\nworkers = 1') + network(delay="0ms")
    costly = select.replace("synthetic", 'root = "/srv"\nwork_path = ["/other.bin=7s", "/dear.bin=20ms"]\nsynthetic')
    file = SATURATOR.replace("/burn/20ms/75672", "/dear.bin")
    assert taken_s(costly + file) == pytest.approx(taken_s(select + SATURATOR), rel=0.01)
    assert taken_s(costly + file.replace("dear", "cheap")) < 5


def test_a_server_on_one_cpu_burns_at_half_the_rate() -> None:
    burning = HTTP.replace("/bytes/", "/burn/20ms/")
    two, one = (taken_s(burning + place) for place in ("", '[place]\ncpus = { server = "0" }\n'))
    assert one - two == pytest.approx(100 * (20e-3 - 20e-3 / 2))


def test_a_server_on_one_cpu_sends_half_as_much_over_links() -> None:
    """Of 384 trials 291 took 33 minutes, which makes 43 of all; 23 were predicted."""
    plan = expand(read_file(shipped.find("http-saturation-versions")), seed=1)
    assert predicted_s(plan) * 12 / plan.suite.run.repeat / 60 == pytest.approx(43, rel=0.05)
    # Without links nothing but the burning is known to take longer.
    on_one = HTTP + '[place]\ncpus = { server = "0" }\n'
    assert taken_s(on_one) == taken_s(HTTP)


def test_the_experiment_at_50_mbit_a_second_is_no_matter_of_seconds() -> None:
    suite = read_file(shipped.find("http-saturation-bandwidth"))
    plan = expand(suite, seed=1)
    times = {
        (str(each.setting["network.rate"]), each.setting["network.delay"]): trial_s(suite, each) for each in plan.points
    }
    assert times["50Mbit", "1ms"] > 8
    assert predicted_s(plan) > 1800
    assert predicted_s(plan) == pytest.approx(sum(20 * trial_s(suite, each) for each in plan.points))


def test_a_search_of_finer_bounds_is_said_to_take_longer() -> None:
    search = '[limits]\n"response_time.p99" = "<20ms"\n[search]\nover = "load.rate"\nrange = [100, "200k"]\n'
    text = 'name = "it"\nquestion = "Well?"\n[server]\n[load]\nduration = "1s"\n[run]\nrepeat = 2\n' + search

    def searched_s(more: str = "") -> float:
        return predicted_s(expand(read_text(text + more, source="it.toml", directory="/here"), seed=1))

    # Six fourfold rises, five halvings and three trials of each; eight confirming trials of ten
    # seconds and two of a minute, with their warm-ups; in two blocks. As many as a search makes.
    assert (finding.RISE, goal.CONFIRMATIONS, goal.HOLDS, 1 + WARM_UP) == (4, 8, 2, 1.5)
    assert searched_s() == pytest.approx(2 * (11 * 3 + 1.5 * (8 * 10 + 2 * 60)), rel=0.05)
    assert searched_s('width = "1%"\n') > searched_s() > searched_s('width = "20%"\n')


@pytest.mark.parametrize("name", [name for name, _ in shipped.suites()])
def test_every_suite_that_ships_repeats_often_enough_for_its_verdicts(name: str) -> None:
    """Three of them had three repetitions, and `plan` said that these cannot show anything."""
    plan = expand(read_file(shipped.find(name)), seed=1)
    if contender_path(plan) is not None:
        assert plan.suite.run.repeat >= LEAST_BLOCKS


def test_no_search_is_predicted_to_last_longer_than_its_patience() -> None:
    """`plan` said "about 26 s or more, up to 16 s"."""
    text = 'name = "it"\nquestion = "Well?"\n[server]\n[load]\nduration = "1s"\n[limits]\nfailed_ratio = "<1%"\n'
    text += '[search]\nover = "load.connections"\nrange = [1, 1000]\npatience = "8s"\n[run]\nrepeat = 2\n'
    plan = expand(read_text(text, source="it.toml", directory="/here"), seed=1)
    assert predicted_s(plan) == 16.0
    said = render_plan(describe_plan(plan), colour=False)
    assert "= 2 searches, up to 16 s: trials become as long as" in said
