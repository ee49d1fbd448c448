"""Do partitioned programs keep the numbers, and does what the documentation promises hold?"""
