// The journal's directory on a real file system.
#include "actors/outbox/posix_journal_disk.hpp"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "actors/outbox/journal_files.hpp"

namespace openshell::supervisor {
namespace {

namespace fs = std::filesystem;

class PosixDisk : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string path = fs::temp_directory_path() / "journal-XXXXXX";
    ASSERT_NE(::mkdtemp(path.data()), nullptr);
    root = path;
    directory = root + "/outbox";
  }
  void TearDown() override { fs::remove_all(root); }

  std::string root, directory;
};

TEST_F(PosixDisk, WhatWasAppendedIsFoundByTheNextProcess) {
  {
    JournalFiles files{posix_journal_disk(directory), "sb", "g"};
    ASSERT_TRUE(files.append({{Revision{3}, PolicyOutcome::failed, "why", Acknowledgement::initial}}).ok());
  }
  struct stat found {};
  ASSERT_EQ(::stat(directory.c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777, 0700U);
  ASSERT_EQ(::stat((directory + "/0000000000000001.journal").c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777, 0600U);
  JournalFiles files{posix_journal_disk(directory), "sb", "g2"};
  ASSERT_TRUE(files.open().ok());
  const auto read = files.read(1);
  ASSERT_TRUE(read.ok());
  ASSERT_EQ(read->size(), 1U);
  EXPECT_EQ(read->at(0).second.error, "why");
}

TEST_F(PosixDisk, AnotherProcessIsKeptOut) {
  auto first = posix_journal_disk(directory);
  ASSERT_TRUE(first->open().ok());
  EXPECT_TRUE(first->open().ok()) << "again is no harm";
  EXPECT_EQ(posix_journal_disk(directory)->open().code(), absl::StatusCode::kUnavailable);
  first.reset();
  EXPECT_TRUE(posix_journal_disk(directory)->open().ok());
}

TEST_F(PosixDisk, ADirectoryThatOthersMayReadOrALinkIsRefused) {
  fs::create_directory(directory);
  fs::permissions(directory, fs::perms::owner_all | fs::perms::group_read);
  EXPECT_EQ(posix_journal_disk(directory)->open().code(), absl::StatusCode::kPermissionDenied);
  fs::remove(directory);
  fs::create_directory(root + "/elsewhere");
  fs::create_directory_symlink(root + "/elsewhere", directory);
  EXPECT_FALSE(posix_journal_disk(directory)->open().ok());
}

TEST_F(PosixDisk, NoLinkAndNoFifoIsReadOrWritten) {
  auto disk = posix_journal_disk(directory);
  ASSERT_TRUE(disk->open().ok());
  std::ofstream{root + "/secret"} << "secret";
  fs::create_symlink(root + "/secret", directory + "/a");
  EXPECT_FALSE(disk->read("a", 100).ok());
  EXPECT_FALSE(disk->append("a", "x", true).ok());
  ASSERT_EQ(::mkfifo((directory + "/b").c_str(), 0600), 0);
  EXPECT_FALSE(disk->read("b", 100).ok()) << "and does not hang";
  EXPECT_FALSE(disk->create("a", "x").ok());
}

TEST_F(PosixDisk, CutCopyRenameRemove) {
  auto disk = posix_journal_disk(directory);
  ASSERT_TRUE(disk->open().ok());
  ASSERT_TRUE(disk->create("a", "head").ok());
  ASSERT_TRUE(disk->append("a", "tail", true).ok());
  EXPECT_EQ(*disk->read("a", 8), "headtail");
  EXPECT_EQ(disk->read("a", 7).status().code(), absl::StatusCode::kResourceExhausted);
  ASSERT_TRUE(disk->copy("a", "b").ok());
  ASSERT_TRUE(disk->cut("a", 4).ok());
  ASSERT_TRUE(disk->append("a", "!", false).ok());
  EXPECT_EQ(*disk->read("a", 8), "head!");
  ASSERT_TRUE(disk->rename("a", "c").ok());
  EXPECT_FALSE(disk->append("a", "x", true).ok()) << "the old name is gone, not only forgotten";
  ASSERT_TRUE(disk->remove("c").ok());
  EXPECT_EQ(*disk->read("b", 8), "headtail");
}

TEST_F(PosixDisk, AParentThatIsNotThereIsAnError) { EXPECT_FALSE(posix_journal_disk(root + "/not/there")->open().ok()); }

}  // namespace
}  // namespace openshell::supervisor
