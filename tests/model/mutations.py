#!/usr/bin/env python3
"""Faults put into the code on purpose, to see that the model tests would find each: "show that each invariant can fail".

  mutations.py generate DIR   copies of the sources with every mutation compiled in, each behind a switch
  mutations.py run PROGRAM    openshell_model_mutants with one switch after the other; every mutation has to break an invariant
  mutations.py list

A mutation replaces one piece of text that stands exactly once in its file. `MUTANT(n)` is true while mutation n is on.
"""

import concurrent.futures
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCHEDULES = 40_000  # a mutation that survives so many is not caught
LONGEST = 180  # seconds for them; a program that hangs has found nothing

QUEUE = "actors/outbox/outbox_queue.cpp"
OUTBOX = "actors/outbox/outbox.cpp"
FILES = "actors/outbox/journal_files.cpp"
RECORD = "actors/outbox/journal_record.cpp"
ACKS = "actors/supervisor/acknowledgements.cpp"
PUBLISHER = "actors/supervisor/runtime_publisher.cpp"
POLLER = "actors/supervisor/policy_poller.cpp"
SCHEDULE = "actors/supervisor/poll_schedule.cpp"
WINDOW = "actors/denial_aggregator/denial_window.cpp"
AGGREGATOR = "actors/denial_aggregator/denial_aggregator.cpp"
OBSERVER = "actors/endpoint_observer/endpoint_observer.cpp"
LEDGER = "actors/sandbox/exec_ledger.cpp"
REGISTRY = "actors/sandbox/exec_registry.cpp"
PROCESS = "actors/sandbox/managed_process.cpp"
HISTORY = "actors/gateway/policy_history.cpp"

# (what is wrong, world, file, text, its replacement)
MUTATIONS = [
    # ---- order and pace of the outbox
    ("two statuses are in flight at once", "status", QUEUE,
     "if (in_flight_ || backing_off_ || window_.empty())", "if ((in_flight_ && !MUTANT(N)) || backing_off_ || window_.empty())"),
    ("the head is offered again at once", "status", QUEUE,
     "  backing_off_ = true;\n", "  backing_off_ = !MUTANT(N);\n"),
    ("a status is offered before it is on disk", "status", QUEUE,
     "window_.front().seq == 0 && !in_memory_)", "window_.front().seq == 0 && !in_memory_ && !MUTANT(N))"),
    ("the newest status is delivered first", "status", QUEUE,
     "    window_.push_back(std::move(newest_.front()));\n    newest_.pop_front();",
     "    if (MUTANT(N) && !in_flight_) window_.push_front(std::move(newest_.front()));\n"
     "    else window_.push_back(std::move(newest_.front()));\n    newest_.pop_front();"),
    ("a failed delivery drops the head", "status", QUEUE,
     "  assert(in_flight_);\n", "  assert(in_flight_);\n  if (MUTANT(N)) window_.pop_front();\n"),
    ("every back-off is a second", "status", QUEUE,
     "std::min(failures_++, 20U);", "MUTANT(N) ? 0U : std::min(failures_++, 20U);"),
    ("what is on disk only is not read back", "status", QUEUE,
     "  if (on_disk_ == 0 || reading_ ||", "  if (on_disk_ == 0 || MUTANT(N) || reading_ ||"),
    ("reading back skips one", "status", QUEUE,
     "    if (seq < disk_first_ || seq > disk_last_) continue;", "    if (seq < disk_first_ || seq > disk_last_ || (MUTANT(N) && seq == disk_first_)) continue;"),
    ("the journal of the process before is forgotten", "status", QUEUE,
     "  if (count == 0 || std::exchange(adopted_, true)) return;", "  if (count == 0 || MUTANT(N) || std::exchange(adopted_, true)) return;"),
    ("a successor of the outbox waits for the answer to its predecessor", "status", QUEUE,
     "  in_flight_ = backing_off_ = false;\n  failures_ = 0;", "  if (!MUTANT(N)) in_flight_ = backing_off_ = false;\n  failures_ = 0;"),
    ("what is being written when the writer dies is never written", "status", QUEUE,
     "  writing_.clear();\n  settled_early_.clear();\n  reading_ = given_up_ = false;",
     "  if (!MUTANT(N)) writing_.clear();\n  settled_early_.clear();\n  reading_ = given_up_ = false;"),
    ("a retryable error drops the status", "status", OUTBOX,
     "if (is_retryable(failure.code())) {", "if (is_retryable(failure.code()) && !MUTANT(N)) {"),
    ("UNAVAILABLE is taken for the last word", "status", OUTBOX,
     "    case absl::StatusCode::kUnavailable:\n", "    case absl::StatusCode::kUnavailable:\n      if (MUTANT(N)) return false;\n      [[fallthrough]];\n"),
    ("the token is not renewed", "status", OUTBOX,
     "if (needs_new_token(failure.code())) {", "if (needs_new_token(failure.code()) && !MUTANT(N)) {"),
    ("a status that was refused for good is kept", "status", OUTBOX,
     "            ++self->state.discarded;\n            settle(self, gateway, false);",
     "            ++self->state.discarded;\n            if (MUTANT(N)) return;\n            settle(self, gateway, false);"),
    # ---- the journal
    ("a write is not synced", "status", FILES,
     "disk_->append(file.name, bytes, true)", "disk_->append(file.name, bytes, !MUTANT(N))"),
    ("a file goes while a status in it waits", "status", FILES,
     "if (file.name == current_ || has_waiting(first, file.last)) return;", "if (file.name == current_ || (has_waiting(first, file.last) && !MUTANT(N))) return;"),
    ("a torn tail is written behind", "status", FILES,
     "whole = disk_->cut(name, content.good_bytes).ok();", "whole = MUTANT(N) || disk_->cut(name, content.good_bytes).ok();"),
    ("a status is taken for done when it is written", "status", FILES,
     "waiting_.insert(waiting_.end(), first + i);", "if (!MUTANT(N)) waiting_.insert(waiting_.end(), first + i);"),
    ("the error of a failed policy is not in the journal", "status", RECORD,
     "  wire.set_load_error(status.status.error.substr(0, kMaxJournalErrorBytes));", "  if (!MUTANT(N)) wire.set_load_error(status.status.error.substr(0, kMaxJournalErrorBytes));"),
    # ---- what is acknowledged
    ("same content under a newer version is not acknowledged", "status", ACKS,
     "  if (!reloaded && snapshot.version <= last_loaded_) return std::nullopt;", "  if (!reloaded && (MUTANT(N) || snapshot.version <= last_loaded_)) return std::nullopt;"),
    ("the running revision is acknowledged twice", "status", ACKS,
     "  if (acknowledges(running)) last_loaded_ = running.version;", "  if (acknowledges(running) && !MUTANT(N)) last_loaded_ = running.version;"),
    ("a rejection is not reported", "status", ACKS,
     "  if (identity == last_failure_) return std::nullopt;", "  if (identity == last_failure_ || MUTANT(N)) return std::nullopt;"),
    ("the construction error is replaced", "status", ACKS,
     "PolicyOutcome::failed, error.substr(0, kMaxErrorBytes),", "PolicyOutcome::failed, MUTANT(N) ? std::string{\"invalid\"} : error.substr(0, kMaxErrorBytes),"),
    ("a revision that runs again after a rejection is not acknowledged", "status", ACKS,
     "snapshot.version == last_loaded_ && !recovered)", "snapshot.version == last_loaded_ && (!recovered || MUTANT(N)))"),
    ("the initial acknowledgement is left out", "status", PUBLISHER,
     "if (options.acknowledge_running && state", "if (!MUTANT(N) && options.acknowledge_running && state"),
    ("a rejected policy is acknowledged as loaded", "status", PUBLISHER,
     "  if (!prepared.ok()) return reject(self, peers, candidate, prepared.status());",
     "  if (!prepared.ok() && MUTANT(N)) peers.journal->push({candidate.snapshot.version, PolicyOutcome::loaded, {}, Acknowledgement::reloaded});\n"
     "  if (!prepared.ok()) return reject(self, peers, candidate, prepared.status());"),
    ("a rejected policy leaves the traffic as it was", "status", PUBLISHER,
     "  if (!keep) {\n", "  if (!keep && !MUTANT(N)) {\n"),
    ("the observer is not told of a new configuration", "status", PUBLISHER,
     "  tell_installed(self, peers);\n  spdlog::info(\"policy version", "  if (!MUTANT(N)) tell_installed(self, peers);\n  spdlog::info(\"policy version"),
    ("the gateway changes a superseded revision", "status", HISTORY,
     "} else if (revision.status() != pb::POLICY_STATUS_SUPERSEDED &&\n             (revision.status() != pb::POLICY_STATUS_FAILED ||",
     "} else if (revision.status() != pb::POLICY_STATUS_SUPERSEDED &&\n             (revision.status() != pb::POLICY_STATUS_FAILED || MUTANT(N) ||"),
    # ---- polls
    ("polls wait until the gateway knows everything", "status", PUBLISHER,
     "PublishOutcome publish(Self self, const Peers& peers, Candidate candidate) {\n",
     "PublishOutcome publish(Self self, const Peers& peers, Candidate candidate) {\n  if (MUTANT(N) && peers.journal->size() > 0) return {true, true};\n"),
    ("a failed poll is the last one", "status", POLLER,
     "  arm(self, self->state.schedule.failed(poll->random()));", "  if (!MUTANT(N)) arm(self, self->state.schedule.failed(poll->random()));"),
    ("environment and policy need not belong together", "status", POLLER,
     "            if (together) return publish", "            if (together || MUTANT(N)) return publish"),
    ("a configuration that comes with its environment is not judged", "status", POLLER,
     "{ polled(poll, newer, attempt + 1); }", "{\n                        if (MUTANT(N)) return fetch_environment(poll, newer, self->state.tracker.judge(newer), attempt + 1);\n                        polled(poll, newer, attempt + 1);\n                      }"),
    ("a nudge is answered by the poll that was under way", "status", SCHEDULE,
     "  waiting_.push_back(std::move(update_id));\n", "  (MUTANT(N) && in_flight_ ? answering_ : waiting_).push_back(std::move(update_id));\n"),
    ("a failed poll forgets its nudges", "status", SCHEDULE,
     "  waiting_.insert(waiting_.begin(), answering_.begin(), answering_.end());", "  if (!MUTANT(N)) waiting_.insert(waiting_.begin(), answering_.begin(), answering_.end());"),
    ("what ran before a rejection is taken for running still", "status", SCHEDULE,
     "    running_hash_.clear();", "    if (!MUTANT(N)) running_hash_.clear();"),
    ("a newer version of the same content is not seen", "status", SCHEDULE,
     "  const bool same = polled.config_revision == seen_.config_revision && polled.policy_hash == seen_.policy_hash &&\n                    polled.version == seen_.version &&",
     "  const bool same = (polled.config_revision == seen_.config_revision || MUTANT(N)) && polled.policy_hash == seen_.policy_hash &&\n                    (polled.version == seen_.version || MUTANT(N)) &&"),
    # ---- denials
    ("a repeated window counts itself again", "status", WINDOW,
     "    summary.count += newer.count;", "    summary.count += newer.count + (MUTANT(N) ? summary.count : 0);"),
    ("a repeated window begins anew", "status", WINDOW,
     "    auto& summary = found->second = std::move(older);", "    const auto newer_at = newer.first.at;\n    auto& summary = found->second = std::move(older);\n    if (MUTANT(N)) summary.first.at = newer_at;"),
    ("a submitted window stays", "status", AGGREGATOR,
     "            self->state.submitted += size;", "            self->state.submitted += size;\n            if (MUTANT(N)) self->state.window.merge(batch.summaries);"),
    ("a window that was not taken is lost", "status", AGGREGATOR,
     "            self->state.window.merge(summaries);", "            if (!MUTANT(N)) self->state.window.merge(summaries);"),
    # ---- observations
    ("results of the configuration before are kept", "status", OBSERVER,
     "  installed_ = installed;\n  results_.clear();\n  news_.clear();\n  pending_.reset();\n",
     "  installed_ = installed;\n  if (!MUTANT(N)) results_.clear();\n  news_.clear();\n  pending_.reset();\n"),
    ("results are taken for those of the configuration before", "status", OBSERVER,
     "state.box->drain(state.window.inventory())", "state.box->drain(MUTANT(N) ? state.box->inventory() : state.window.inventory())"),
    ("a successor of the observer counts its reports from one again", "status", OBSERVER,
     "self->state.box->last_sequence(session_id);", "MUTANT(N) ? 0 : self->state.box->last_sequence(session_id);"),
    ("a repeated report holds what came meanwhile", "status", OBSERVER,
     "  if (pending_) return pending_;", "  if (pending_ && MUTANT(N)) {\n    for (auto& seen : pending_->observations) seen.result = results_[seen.endpoint_id];\n  }\n  if (pending_) return pending_;"),
    ("a report that is refused for good takes its results along", "status", OBSERVER,
     "  news_.insert(pending_->observed.begin(), pending_->observed.end());\n  unseen_ = true;", "  if (MUTANT(N)) return pending_.reset();\n  news_.insert(pending_->observed.begin(), pending_->observed.end());\n  unseen_ = true;"),
    ("after a refusal nothing is reported any more", "status", OBSERVER,
     "  wait(self, std::min<std::chrono::seconds>(", "  if (MUTANT(N)) self->state.waiting = true;\n  else wait(self, std::min<std::chrono::seconds>("),
    # ---- execs
    ("an exec is continued by another payload", "exec", LEDGER,
     "    if (entry.digest != digest) return", "    if (entry.digest != digest && !MUTANT(N)) return"),
    ("an expired exec is launched", "exec", LEDGER,
     "  if (now_unix_ms >= expires_at_unix_ms) return refuse(ErrorKind::denied, kExpired);\n  if (by_request_", "  if (now_unix_ms >= expires_at_unix_ms && !MUTANT(N)) return refuse(ErrorKind::denied, kExpired);\n  if (by_request_"),
    ("a reclaimed exec is forgotten", "exec", LEDGER,
     "  it->second.phase = Phase::reclaimed;", "  it->second.phase = Phase::reclaimed;\n  if (MUTANT(N)) std::erase_if(by_request_, [&](const auto& one) { return one.second == process_id; });"),
    ("a failed launch is tried again", "exec", LEDGER,
     "  e.error = std::move(error);", "  e.error = std::move(error);\n  if (MUTANT(N)) std::erase_if(by_request_, [&](const auto& one) { return one.second == process_id; });"),
    ("more processes are retained than allowed", "exec", LEDGER,
     "  if (retained_ >= limits_.retained) {", "  if (retained_ >= limits_.retained && !MUTANT(N)) {"),
    ("more ids are accepted than allowed", "exec", LEDGER,
     "  if (by_request_.size() >= limits_.accepted) return", "  if (by_request_.size() >= limits_.accepted && !MUTANT(N)) return"),
    ("room is made by giving up a process that somebody reads", "exec", LEDGER,
     "id != main_id() && !attached(entry)) {", "id != main_id() && (!attached(entry) || MUTANT(N))) {"),
    ("the status goes with the handle", "exec", LEDGER,
     "  it->second.process.reset();", "  it->second.process.reset();\n  if (MUTANT(N)) it->second.status.reset();"),
    ("an exit that is seen before the launch is lost", "exec", LEDGER,
     "e.phase = e.status ? Phase::exited : Phase::running;", "e.phase = e.status && !MUTANT(N) ? Phase::exited : Phase::running;"),
    ("only one of those who wait is answered", "exec", REGISTRY,
     "    for (auto& promise : node.mapped()) promise.deliver(outcome(boundary::Exited{*status}));",
     "    for (auto& promise : node.mapped()) {\n      promise.deliver(outcome(boundary::Exited{*status}));\n      if (MUTANT(N)) break;\n    }"),
    ("the time for reclaiming takes an attached process too", "exec", REGISTRY,
     "if (entry && is_attached(*entry)) {", "if (entry && is_attached(*entry) && !MUTANT(N)) {"),
    ("a process is given a second reader", "exec", PROCESS,
     "  if (impl_->attached) return nullptr;", "  if (impl_->attached && !MUTANT(N)) return nullptr;"),
]

HEAD = '#include "tests/model/explorer/mutant.hpp"\n#define MUTANT(number) ::openshell::model::mutant(number)\n'


def sources():
    return sorted({file for _, _, file, _, _ in MUTATIONS})


def generate(directory):
    for file in sources():
        text = (ROOT / file).read_text()
        for number, (what, _, where, old, new) in enumerate(MUTATIONS, 1):
            if where != file:
                continue
            original = (ROOT / file).read_text()
            if original.count(old) != 1 or text.count(old) != 1:
                sys.exit(f"mutation {number} ({what}): its text stands {original.count(old)} times in {file}; adapt {Path(__file__).name}")
            text = text.replace(old, new.replace("MUTANT(N)", f"MUTANT({number})"))
        target = Path(directory) / file
        target.parent.mkdir(parents=True, exist_ok=True)
        text = HEAD + text
        if not target.exists() or target.read_text() != text:
            target.write_text(text)


def one(program, number):
    what, world, *_ = MUTATIONS[number - 1]
    command = [program, "--quiet", "--threads", "1", "--world", world, "--schedules", str(SCHEDULES), "--mutant", str(number)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST)
    except subprocess.TimeoutExpired:
        return number, what, None, 0
    broken = re.search(r"the invariant '([^']+)' is broken", done.stdout)
    played = re.search(r"(\d+) schedules in", done.stdout)
    caught = broken.group(1) if broken else (f"the program ended with {done.returncode}" if done.returncode not in (0, 1) else None)
    return number, what, caught, int(played.group(1)) if played else 0


def run(program, only):
    numbers = only or range(1, len(MUTATIONS) + 1)
    survivors = []
    with concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        for number, what, caught, played in pool.map(lambda number: one(program, number), numbers):
            print(f"{number:3}  {'caught' if caught else 'MISSED':6}  {what}: " + (f"'{caught}', schedule {played}" if caught else f"{played} schedules"), flush=True)
            if not caught:
                survivors.append(number)
    healthy = subprocess.run([program, "--quiet", "--threads", "1", "--schedules", "2000"], capture_output=True, text=True)
    print(f"     without a mutation: {'no invariant broken' if healthy.returncode == 0 else 'BROKEN'}")
    print(f"{len(list(numbers)) - len(survivors)} of {len(list(numbers))} mutations caught")
    return 1 if survivors or healthy.returncode else 0


def main():
    match sys.argv[1:]:
        case ["sources"]:
            print(";".join(sources()), end="")
        case ["list"]:
            for number, (what, world, file, _, _) in enumerate(MUTATIONS, 1):
                print(f"{number:3}  {world:6}  {file}: {what}")
        case ["generate", directory]:
            generate(directory)
        case ["run", program, *numbers]:
            sys.exit(run(program, [int(number) for number in numbers]))
        case _:
            sys.exit(__doc__)


main()
