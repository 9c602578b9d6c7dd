#!/bin/sh
echo $# $1; touch /srv/counted
