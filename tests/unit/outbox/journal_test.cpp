// The outbox's journal: its bytes, its files, and what a crash at any moment leaves of them.
#include "actors/outbox/journal_files.hpp"

#include <gmock/gmock.h>

#include "tests/model/explorer/memory_disk.hpp"

namespace openshell::supervisor {
namespace {

using model::DiskImage;
using model::MemoryDisk;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

PolicyStatus loaded(std::uint64_t version) { return {Revision{version}, PolicyOutcome::loaded, {}, Acknowledgement::reloaded}; }
PolicyStatus failed(std::uint64_t version, std::string error) {
  return {Revision{version}, PolicyOutcome::failed, std::move(error), Acknowledgement::initial};
}

TEST(JournalRecord, WhatWasWrittenIsRead) {
  const auto bytes = journal_head(7) + journal_record(JournalStatus{7, "sb", "g1", failed(3, "no such rule")}) +
                     journal_record(JournalDone{7, false}) + journal_record(JournalStatus{9, "sb", "g2", loaded(4)});
  const auto content = read_journal(bytes);
  EXPECT_TRUE(content.has_head);
  EXPECT_EQ(content.first_seq, 7U);
  EXPECT_EQ(content.good_bytes, bytes.size());
  ASSERT_EQ(content.statuses.size(), 2U);
  EXPECT_EQ(content.statuses[0].status.error, "no such rule");
  EXPECT_EQ(content.statuses[0].status.outcome, PolicyOutcome::failed);
  EXPECT_EQ(content.statuses[0].status.why, Acknowledgement::initial);
  EXPECT_EQ(content.statuses[1].generation, "g2");
  ASSERT_EQ(content.done.size(), 1U);
  EXPECT_FALSE(content.done[0].delivered);
}

TEST(JournalRecord, TheBytesOfARecordArePinned) {  // an old journal stays readable
  EXPECT_EQ(journal_record(JournalDone{1, true}), std::string("\0\0\0\x04\xe7\x99\x03\x96\x02\x08\x01\x10\x01", 13));
  EXPECT_EQ(journal_head(0x0102), std::string("OSOUTBX1\0\0\0\0\0\0\x01\x02", 16));
}

// ACK-47: a torn tail is cut wherever it tore.
TEST(JournalRecord, ACK_47_EveryPrefixIsReadUpToItsLastWholeRecord) {
  const auto head = journal_head(1);
  const auto one = journal_record(JournalStatus{1, "sb", "g", loaded(1)});
  const auto two = journal_record(JournalStatus{2, "sb", "g", failed(2, "x")});
  const auto bytes = head + one + two;
  for (std::size_t size = 0; size <= bytes.size(); ++size) {
    const auto content = read_journal(std::string_view{bytes}.substr(0, size));
    const std::size_t whole = size < head.size()                ? 0
                              : size < head.size() + one.size() ? head.size()
                              : size < bytes.size()             ? head.size() + one.size()
                                                                : size;
    EXPECT_EQ(content.good_bytes, whole) << size;
  }
}

TEST(JournalRecord, EveryFlippedBitIsSeen) {
  const auto head = journal_head(1);
  const auto bytes = head + journal_record(JournalStatus{1, "sb", "g", loaded(1)});
  for (std::size_t at = head.size(); at < bytes.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      auto bad = bytes;
      bad[at] = static_cast<char>(bad[at] ^ (1 << bit));
      EXPECT_THAT(read_journal(bad).statuses, IsEmpty()) << at;
    }
  }
}

TEST(JournalRecord, LengthsOutsideTheLimitsAndFallingSequencesAreDamage) {
  const auto head = journal_head(5);
  EXPECT_EQ(read_journal(head + std::string("\0\0\0\0", 4) + std::string(20, 'x')).good_bytes, head.size());
  EXPECT_EQ(read_journal(head + std::string("\0\1\0\1", 4) + std::string(70'000, 'x')).good_bytes, head.size()) << "65,537";
  EXPECT_THAT(read_journal(head + journal_record(JournalStatus{4, "sb", "g", loaded(1)})).statuses, IsEmpty());
  EXPECT_THAT(read_journal(head + journal_record(JournalStatus{kMaxJournalSequence + 1, "sb", "g", loaded(1)})).statuses, IsEmpty());
  EXPECT_FALSE(read_journal("OSOUTBX2" + std::string(8, '\0')).has_head);
  const auto longest = journal_record(JournalStatus{5, "sb", "g", failed(1, std::string(20'000, 'e'))});
  EXPECT_EQ(read_journal(head + longest).statuses.at(0).status.error.size(), kMaxJournalErrorBytes);
}

class Journal : public ::testing::Test {
 protected:
  std::unique_ptr<JournalFiles> open(JournalFiles::Limits limits = {.file_bytes = 200, .files = 8, .read_back = 3}) {
    auto files = std::make_unique<JournalFiles>(std::make_unique<MemoryDisk>(image), "sb", "g", limits);
    EXPECT_TRUE(files->open().ok());
    return files;
  }
  std::vector<std::uint64_t> versions(JournalFiles& files) {
    std::vector<std::uint64_t> out;
    for (auto from = files.waiting().first;;) {
      auto read = files.read(from);
      EXPECT_TRUE(read.ok()) << read.status();
      if (!read.ok() || read->empty()) return out;
      for (const auto& [seq, status] : *read) out.push_back(status.revision.value);
      from = read->back().first + 1;
    }
  }
  void crash(std::size_t keep = 0) {
    image->crash([keep](std::size_t size) { return std::min(keep, size); });
  }

  std::shared_ptr<DiskImage> image = std::make_shared<DiskImage>();
};

TEST_F(Journal, ACK_47_WhatIsNotDoneIsReplayedInOrder) {
  auto files = open();
  for (std::uint64_t version = 1; version <= 9; ++version) EXPECT_EQ(*files->append({loaded(version)}), version);
  EXPECT_GT(files->files(), 1U) << "they do not fit into one";
  ASSERT_TRUE(files->done(1, true).ok());
  ASSERT_TRUE(files->done(2, false).ok());
  files.reset();
  crash(10'000);
  files = open();
  EXPECT_EQ(files->replayed().count, 7U);
  EXPECT_THAT(versions(*files), ElementsAre(3, 4, 5, 6, 7, 8, 9));
  EXPECT_EQ(*files->append({loaded(10)}), 10U) << "sequences rise over all processes";
}

TEST_F(Journal, AppendingNothingOpensItAndWritesNothing) {
  {
    auto files = open();
    ASSERT_TRUE(files->append({loaded(1)}).ok());
  }
  const auto before = image->files.size();
  JournalFiles files{std::make_unique<MemoryDisk>(image), "sb", "g"};
  ASSERT_TRUE(files.append({}).ok());
  EXPECT_EQ(files.replayed().count, 1U);
  EXPECT_EQ(image->files.size(), before);
}

TEST_F(Journal, AFinishedFileGoesOldestFirst) {
  auto files = open();
  std::vector<std::uint64_t> seqs;
  for (std::uint64_t version = 1; version <= 9; ++version) seqs.push_back(*files->append({loaded(version)}));
  const auto before = files->files();
  for (const auto seq : seqs) EXPECT_TRUE(files->done(seq, true).ok());
  EXPECT_LT(files->files(), before);
  EXPECT_EQ(image->files.size(), files->files());
  EXPECT_EQ(files->waiting().count, 0U);
}

TEST_F(Journal, ALostMarkRepeatsAndNothingElse) {
  auto files = open();
  ASSERT_TRUE(files->append({loaded(1)}).ok());
  ASSERT_TRUE(files->append({loaded(2)}).ok());
  ASSERT_TRUE(files->done(1, true).ok());
  files.reset();
  crash();  // marks are not synced
  files = open();
  EXPECT_THAT(versions(*files), ElementsAre(1, 2));
}

TEST_F(Journal, ACK_47_ATornTailIsCutAtEveryByte) {
  for (std::size_t keep = 0;; ++keep) {
    image = std::make_shared<DiskImage>();
    auto files = open();
    ASSERT_TRUE(files->append({loaded(1)}).ok());
    image->fault = [](const std::string& operation) { return operation == "sync" ? absl::InternalError("power") : absl::OkStatus(); };
    EXPECT_FALSE(files->append({loaded(2)}).ok());
    files.reset();
    const auto torn = image->files.begin()->second.unsynced.size();
    crash(keep);
    image->fault = [](const std::string&) { return absl::OkStatus(); };
    files = open();
    const auto next = files->append({loaded(3)});
    ASSERT_TRUE(next.ok());
    if (keep < torn) {
      EXPECT_THAT(versions(*files), ElementsAre(1, 3)) << keep;
    } else {
      EXPECT_THAT(versions(*files), ElementsAre(1, 2, 3));
      break;
    }
  }
}

TEST_F(Journal, ACK_47_DamageInTheMiddleCostsWhatIsDamagedAndLeavesACopy) {
  auto files = open();
  for (std::uint64_t version = 1; version <= 9; ++version) ASSERT_TRUE(files->append({loaded(version)}).ok());
  files.reset();
  crash();
  auto& first = image->files.begin()->second.synced;
  first[first.size() - 1] ^= 1;  // the last record of the oldest file
  files = open();
  const auto found = versions(*files);
  EXPECT_EQ(found.size(), 8U);
  EXPECT_EQ(found.front(), 1U);
  EXPECT_EQ(found.back(), 9U);
  EXPECT_TRUE(image->files.contains("0000000000000001.journal.bad"));
}

TEST_F(Journal, AnotherMagicIsSetAsideAndAtMostFourAreKept) {
  for (int i = 1; i <= 6; ++i) image->files["000000000000000" + std::to_string(i) + ".journal"] = {"nonsense", {}};
  auto files = open();
  EXPECT_TRUE(files->append({loaded(1)}).ok());
  std::size_t bad = 0;
  for (const auto& [name, file] : image->files) bad += name.ends_with(".bad") ? 1U : 0U;
  EXPECT_EQ(bad, 4U);
}

TEST_F(Journal, AStatusOfAnotherSandboxIsDiscarded) {
  image->files["0000000000000001.journal"] = {
      journal_head(1) + journal_record(JournalStatus{1, "other", "g", loaded(1)}) + journal_record(JournalStatus{2, "sb", "g", loaded(2)}),
      {}};
  auto files = open();
  EXPECT_THAT(versions(*files), ElementsAre(2));
}

TEST_F(Journal, AFullJournalIsUnwritableAndHasRoomAgain) {
  auto files = open({.file_bytes = 60, .files = 2, .read_back = 8});
  std::uint64_t version = 1;
  while (files->append({loaded(version)}).ok()) ++version;
  EXPECT_EQ(files->files(), 2U);
  EXPECT_EQ(files->append({loaded(99)}).status().code(), absl::StatusCode::kResourceExhausted);
  for (std::uint64_t seq = 1; seq < version; ++seq) (void)files->done(seq, true);
  EXPECT_TRUE(files->append({loaded(version)}).ok());
}

TEST_F(Journal, ACK_48_AFailureAtEachOperationLosesNothingThatWasAnswered) {
  for (const char* broken : {"open", "list", "read", "create", "append", "sync", "cut", "remove"}) {
    image = std::make_shared<DiskImage>();
    std::vector<std::uint64_t> answered;
    {
      auto files = open();
      int calls = 0;
      image->fault = [&, broken](const std::string& operation) {
        return operation == broken && ++calls % 2 == 1 ? absl::InternalError("EIO") : absl::OkStatus();
      };
      for (std::uint64_t version = 1; version <= 12; ++version) {
        if (files->append({loaded(version)}).ok()) answered.push_back(version);
      }
    }
    crash();
    image->fault = [](const std::string&) { return absl::OkStatus(); };
    auto files = open();
    const auto found = versions(*files);
    for (const auto version : answered) EXPECT_THAT(found, ::testing::Contains(version)) << broken;
  }
}

TEST_F(Journal, OneProcessHasItAtATime) {
  auto files = open();
  JournalFiles second{std::make_unique<MemoryDisk>(image), "sb", "g"};
  EXPECT_FALSE(second.open().ok());
  files.reset();
  EXPECT_TRUE(second.open().ok());
}

}  // namespace
}  // namespace openshell::supervisor
